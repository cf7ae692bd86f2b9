"""Stages that take idle nodes first (`nodesWhen`): nodes without pods but those of DaemonSets,
static pods, and pods that ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gitops_ds.model.plain_text import counted
from gitops_ds.model.rollouts.rollout_policy import Stage
from gitops_ds.model.rollouts.staged_rollout import HoldKind, NodeStep, StageHold
from gitops_ds.rollouts.staged_nodes import StagedNodes


def waits(fleet: StagedNodes, name: str) -> bool:
    """Whether a node is not taken now because it is not idle."""
    if name not in fleet.inputs.busy or not fleet.inputs.target.staged:
        return False
    stage = next(one for one in fleet.policy.stages if one.name == fleet.nodes[name].stage)
    return stage.is_idle and fleet.now < _opened(fleet, stage) + stage.idle_for


def hold(fleet: StagedNodes, stage: Stage | None, take: Sequence[str]) -> StageHold | None:
    """The hold of a stage in which only nodes are left that are not idle."""
    if stage is None or take or not stage.is_idle:
        return None
    waiting = [
        name
        for name, one in fleet.nodes.items()
        if one.stage == stage.name and one.step is NodeStep.WAITING
    ]
    if not waiting or not all(waits(fleet, name) for name in waiting):
        return None
    is_final = math.isinf(stage.idle_for)
    until = _opened(fleet, stage) + (stage.until if is_final else stage.idle_for)
    overdue = ", overdue" if until <= fleet.now else ""
    reason = f"{counted(len(waiting), 'node')} with other pods (nodesWhen: {stage.nodes_when})"
    about = f"{stage.name}{overdue}"
    ends = None if overdue else until
    return StageHold(f"{reason}{overdue}", ends, kind=HoldKind.IDLE, about=about)


def _opened(fleet: StagedNodes, stage: Stage) -> float:
    """When the stage before passed, or the rollout began, in seconds since 1970."""
    passed, before = fleet.inputs.record.passed, fleet.inputs.record.began or fleet.now
    for one in fleet.policy.stages:
        if one is stage:
            break
        before = passed.get(one.name, fleet.now)
    return before
