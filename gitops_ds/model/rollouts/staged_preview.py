"""The preview of a staged rollout without faults: its stages, their nodes in order, and their
times.
"""

from __future__ import annotations

import msgspec


class StagePreview(msgspec.Struct, frozen=True):
    """One stage: its nodes in the order in which they are updated, and its times in seconds after
    the start.

    `begins` is None for a stage without nodes, `ends` None if the simulation ended before the
    stage. `waits` are conditions that can't be simulated: approvals, windows, measured gates.
    """

    name: str
    nodes: tuple[str, ...]
    begins: float | None = None
    ends: float | None = None
    waits: tuple[str, ...] = ()


class StagedPreview(msgspec.Struct, frozen=True):
    """A whole rollout without faults. `seconds` is its length, None if it does not end.

    `cap` is the maximum of nodes at risk at once. `parked` are the nodes that are broken now: they
    are updated after they recover. `start` and `stop` are the assumed seconds of a pod until it is
    ready, and until it is gone.
    """

    stages: tuple[StagePreview, ...]
    seconds: float | None
    cap: int
    parked: tuple[str, ...] = ()
    start: float = 0.0
    stop: float = 0.0

    @property
    def order(self) -> tuple[str, ...]:
        """The nodes in the order of their update, stage by stage."""
        return tuple(node for stage in self.stages for node in stage.nodes)
