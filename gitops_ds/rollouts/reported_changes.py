"""What decisions about a target report: each hold once while it lasts or returns, and the nodes of
a stage that can't be proved, with those that it takes instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gitops_ds.model.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.model.rollouts.staged_rollout import (
    APART,
    HoldKind,
    NodeStep,
    StageHold,
    StagesDecision,
    StageState,
)

RETURNS = 300.0  # seconds in which a hold that ended and begins again is the same one

_HoldOfTarget = tuple[str, HoldKind, str]  # the hash of the target, the kind, and the subject


class ReportedHolds(msgspec.Struct, frozen=True):
    """The hold in force, None without one, and the ends of recent holds, in seconds since 1970."""

    current: _HoldOfTarget | None = None
    ended: Mapping[_HoldOfTarget, float] = {}

    @property
    def is_new(self) -> bool:
        """Whether the hold in force must be reported."""
        return self.current is not None and self.current not in self.ended

    def after(self, target: str, hold: StageHold | None, now: float) -> ReportedHolds:
        """The holds after a decision about the target with this hash."""
        ended = {one: end for one, end in self.ended.items() if now - end <= RETURNS}
        if self.current is not None:
            ended[self.current] = now
        current = (target, hold.kind, hold.about) if hold is not None else None
        return ReportedHolds(current, ended)


class ReplacedNodes(msgspec.Struct, frozen=True):
    """The stage, its `lost` nodes with the reason of each, and the nodes that it takes instead."""

    stage: str
    lost: Mapping[str, str]
    taken: tuple[str, ...]


def replaced(
    policy: RolloutPolicy, before: StagesDecision, now: StagesDecision
) -> Iterator[ReplacedNodes]:
    """The replacements between two decisions about one target: after all nodes of a stage were set
    aside or left the cluster, it takes others.
    """
    counted = {stage.name for stage in policy.stages if stage.nodes is not None}
    steps = {one.node: one for one in now.nodes}
    for was, stage in zip(before.stages, now.stages, strict=False):
        taken = tuple(name for name in stage.nodes if name not in was.nodes)
        kept = [steps[name] for name in was.nodes if name in steps]
        is_lost = was.nodes and all(one.step in APART for one in kept)
        if not (taken and is_lost and stage.name in counted) or stage.state is StageState.PASSED:
            continue
        lost = {one.node: one.reason for one in kept if one.step is NodeStep.SET_ASIDE}
        lost |= {name: "NodeGone" for name in was.nodes if name not in steps}
        if lost:
            yield ReplacedNodes(stage.name, lost, taken)
