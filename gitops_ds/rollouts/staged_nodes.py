"""The nodes of a staged rollout: the eligible ones, divided into stages, with their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gitops_ds.apimachinery.node_eligibility import Placement
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.model.rollouts.rollout_policy import RolloutPolicy, Stage
from gitops_ds.model.rollouts.staged_rollout import NodeProgress, NodeStep, StageInputs
from gitops_ds.rollouts import node_steps, stage_members
from gitops_ds.rollouts.failure_cause import AttributedNodes
from gitops_ds.rollouts.node_steps import TOUCHED, NodeSteps
from gitops_ds.rollouts.stage_members import Candidates


class StagedNodes(msgspec.Struct, frozen=True):
    """The eligible nodes, `members` by stage in the order of their updates; `risky` are at risk."""

    layout: NodePodLayout
    inputs: StageInputs
    by_node: Mapping[str, NodePods]
    members: tuple[tuple[str, ...], ...]
    attributed: AttributedNodes
    zones: Mapping[str, str]
    risky: frozenset[str]

    @classmethod
    def of(cls, layout: NodePodLayout, inputs: StageInputs) -> StagedNodes:
        """The nodes of an observation."""
        by_node = {
            node_pods.node: node_pods
            for node_pods in layout.nodes
            if node_pods.wanted or (node_pods.placement is Placement.KEEP and node_pods.staying)
        }
        steps = NodeSteps(layout, inputs)
        nodes = [
            node
            for node in layout.seen.nodes
            if node.name in by_node and not steps.is_excluded(node)
        ]
        parked = frozenset(node.name for node in nodes if node_steps.node_problem(node))
        touched = frozenset(
            name
            for name, node_pods in by_node.items()
            if any(map(steps.is_target, node_pods.staying))
        )
        candidates = Candidates(nodes, touched, parked, layout.seen.own_node)
        members = stage_members.members(inputs.policy, candidates, inputs.pools)
        attributed = steps.attributed(
            {
                name: steps.of(by_node[name], stage, is_passed=is_passed(stage, inputs))
                for stage, names in zip(inputs.policy.stages, members, strict=True)
                for name in names
            }
        )
        risky = frozenset(
            name
            for name, one in attributed.nodes.items()
            if one.step in TOUCHED
            or (one.step is NodeStep.PARKED and steps.broke_since(by_node[name]))
        )
        zones = {node.name: stage_members.zone_of(node) for node in nodes}
        return cls(layout, inputs, by_node, members, attributed, zones, risky)

    @property
    def stages(self) -> Sequence[tuple[Stage, tuple[str, ...]]]:
        """Each stage with the names of its nodes."""
        return tuple(zip(self.policy.stages, self.members, strict=True))

    @property
    def nodes(self) -> Mapping[str, NodeProgress]:
        """The progress of each node."""
        return self.attributed.nodes

    @property
    def now(self) -> float:
        """The time of the observation, in seconds since 1970."""
        return self.layout.seen.now

    @property
    def policy(self) -> RolloutPolicy:
        """The policy of the rollout."""
        return self.inputs.policy

    @property
    def at_risk(self) -> int:
        """The number of nodes at risk."""
        return len(self.risky)

    @property
    def cap(self) -> int:
        """The maximum of nodes at risk; at least one, otherwise no rollout would begin."""
        limits, eligible = self.policy.limits.at_risk, len(self.nodes)
        shares = (limits.cluster, limits.per_variant)
        caps = [share.of(eligible) for share in shares if share is not None]
        return max(1, min([*caps, *([limits.nodes] if limits.nodes is not None else [])]))

    def is_proved(self, stage: Stage, members: Sequence[str]) -> bool:
        """Whether every node of a stage that can run the target does so for long enough.

        A stage of a number of nodes needs at least one proved node: with every node parked nothing
        is proved.
        """
        steps = [self.nodes[name].step for name in members]
        able = [step for step in steps if step not in (NodeStep.PARKED, NodeStep.SET_ASIDE)]
        if stage.nodes is not None and members and NodeStep.PROVED not in able:
            return False
        return all(step is NodeStep.PROVED for step in able)


def is_passed(stage: Stage, inputs: StageInputs) -> bool:
    """Whether a stage passed before; a target that the DaemonSet already has needs no stages."""
    return stage.name in inputs.record.passed or not inputs.target.revision
