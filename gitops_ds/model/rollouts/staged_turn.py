"""A turn of a staged rollout, which a journal has beside the observation and the decision."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.model.daemonset import PodCause
from gitops_ds.model.rollouts.rollout_gates import Probe, Reading
from gitops_ds.model.rollouts.staged_rollout import StagesDecision, StageState


class OutsideInputs(msgspec.Struct, frozen=True):
    """The inputs that do not follow from the objects of an observation; see StageInputs."""

    readings: Mapping[Probe, Reading] = msgspec.field(default_factory=dict)
    behind: Mapping[str, frozenset[str] | None] = msgspec.field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    refused: str = ""
    refused_until: float | None = None
    halted_elsewhere: str = ""
    at_once: int | None = None
    warnings: Mapping[str, PodCause] = msgspec.field(default_factory=dict)


class StagesOutcome(msgspec.Struct, frozen=True):
    """The summary of a decision about stages: the nodes to take, the passed stages, why no further
    node is taken, and the nodes at risk with their limit.
    """

    take: tuple[str, ...]
    passed: tuple[str, ...]
    hold: str
    halt: str
    at_risk: int
    cap: int
    complete: bool


class StagedTurn(msgspec.Struct, frozen=True):
    """The inputs and the outcome of a turn; `owned`: this process is the DaemonSet controller."""

    outside: OutsideInputs
    owned: bool
    outcome: StagesOutcome


def outcome_of(stages: StagesDecision) -> StagesOutcome:
    """The summary of a decision."""
    return StagesOutcome(
        stages.take,
        tuple(one.name for one in stages.stages if one.state is StageState.PASSED),
        stages.hold.text if stages.hold is not None else "",
        stages.halt.message if stages.halt is not None else "",
        stages.at_risk,
        stages.cap,
        stages.complete,
    )
