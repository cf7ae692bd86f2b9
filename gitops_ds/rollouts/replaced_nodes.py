"""Nodes of a stage of a number of nodes that can't be proved, and those that it takes instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gitops_ds.model.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.model.rollouts.staged_rollout import APART, NodeStep, StagesDecision, StageState


class ReplacedNodes(msgspec.Struct, frozen=True):
    """The stage, its `lost` nodes with the reason of each, and the nodes that it takes instead."""

    stage: str
    lost: Mapping[str, str]
    taken: tuple[str, ...]


def of(
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
