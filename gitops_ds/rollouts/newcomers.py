"""The nodes that join during a rollout: whether they get the target before their stage opens.

Every new pod is of the DaemonSet's own template, so a node that joins gets the proven one, and the
target in its stage. `newNodes` of the policy permits to update it before; it is at risk like any
touched node.
"""

from __future__ import annotations

from gitops_ds.apimachinery.rollouts import rollout_windows
from gitops_ds.model.rollouts.staged_rollout import APART, NodeStep
from gitops_ds.rollouts import stage_members
from gitops_ds.rollouts.staged_nodes import StagedNodes

_BY_STAGE = ("stable", "end")


def open_nodes(fleet: StagedNodes) -> frozenset[str]:
    """The nodes that joined during the rollout, if they may get the target now."""
    began, policy = fleet.inputs.record.began, fleet.policy.new_nodes
    if not fleet.inputs.target.staged or not began or (policy.get, policy.until) == _BY_STAGE:
        return frozenset()
    joined = frozenset(
        node.name
        for node in fleet.layout.seen.nodes
        if node.created > began and node.name in fleet.nodes
    )
    if not joined or rollout_windows.frozen_until(fleet.policy.freeze, fleet.now) is not None:
        return frozenset()
    permitted = policy.get == "target" or every_platform_is_proved(fleet)
    return joined if permitted else frozenset()


def every_platform_is_proved(fleet: StagedNodes) -> bool:
    """Whether a node of each operating system and architecture is proved."""
    every, proved = set(), set()
    for node in fleet.layout.seen.nodes:
        one = fleet.nodes.get(node.name)
        if one is None or one.step in APART:
            continue
        every.add(stage_members.platform_of(node))
        if one.step is NodeStep.PROVED:
            proved.add(stage_members.platform_of(node))
    return bool(proved) and every == proved
