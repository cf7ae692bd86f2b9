"""The nodes of a staged rollout: the eligible ones, divided into stages, with their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import APART, NodeProgress, NodeStep, StageInputs
from gitops_ds.core.values import replace
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from gitops_ds.rollouts.decisions import failures, node_steps, stage_members
from gitops_ds.rollouts.decisions.failures import AttributedNodes
from gitops_ds.rollouts.decisions.node_steps import DOWN, TOUCHED, NodeSteps
from gitops_ds.rollouts.decisions.stage_members import Candidates


class StagedNodes(msgspec.Struct, frozen=True):
    """The eligible nodes, `members` by stage in the order of their updates; `risky` are at risk.
    `abandoned` have a pod of a template that is neither the target nor proven. `canary_source` is
    the stage that the first one takes a node of, empty if it has nodes of its own.
    """

    layout: NodePodLayout
    inputs: StageInputs
    by_node: Mapping[str, NodePods]
    members: tuple[tuple[str, ...], ...]
    attributed: AttributedNodes
    zones: Mapping[str, str]
    risky: frozenset[str]
    abandoned: frozenset[str] = frozenset()
    canary_source: str = ""

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
        touched = {
            name: failures.touched(pod)
            for name, node_pods in by_node.items()
            for pod in node_pods.staying
            if steps.is_target(pod)
        }
        passed = inputs.record.passed
        own_node = layout.seen.own_node
        candidates = Candidates(nodes, touched, parked, passed=passed, own_node=own_node)
        members, attributed = _progress(by_node, steps, candidates, inputs)
        source = stage_members.canary_source(inputs.policy, nodes, inputs.pools)
        if lost := _lost(members, attributed, inputs, inputs.policy.stages[0] if source else None):
            candidates = replace(candidates, lost=lost)
            members, attributed = _progress(by_node, steps, candidates, inputs)
        abandoned = frozenset(
            name
            for name, node_pods in by_node.items()
            if any(map(steps.is_abandoned, node_pods.staying))
        )
        risky = frozenset(
            name
            for name, one in attributed.nodes.items()
            if _is_risky(one, by_node[name], steps, inputs)
        )
        zones = {node.name: stage_members.zone_of(node) for node in nodes}
        return cls(
            layout,
            inputs,
            by_node,
            members,
            attributed,
            zones,
            risky,
            abandoned,
            source.name if source else "",
        )

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

    def is_proved(self, members: Sequence[str]) -> bool:
        """Whether every node of a stage that can run the target does so for long enough.

        A stage with nodes needs at least one proved node: if all are parked, nothing is proved.
        """
        able = self.able(members)
        return bool(able or not members) and all(
            self.nodes[name].step is NodeStep.PROVED for name in able
        )

    def able(self, members: Sequence[str]) -> Sequence[str]:
        """The nodes that can run the target now."""
        return [name for name in members if self.nodes[name].step not in APART]

    def is_returned(self, pod: Pod) -> bool:
        """Whether a pod of an abandoned template is returned during a rollout: it was halted, or
        made by an edit.
        """
        return pod.hash in self.inputs.halted or not pod.pinned

    def runs_target(self, name: str) -> bool:
        """Whether all pods of a node run the target, also those of an edit."""
        target = self.inputs.target
        staying = self.by_node[name].staying
        return all(node_steps.runs_target(self.layout, target, pod) for pod in staying)

    def is_agent_broken(self, name: str) -> bool:
        """Whether only the agent of an untouched node is broken: it has nothing to lose. An agent
        that is not ready, but may only be starting, is not.
        """
        one = self.nodes[name]
        return one.step is NodeStep.WAITING and bool(one.reason) and one.until is None


def is_passed(stage: Stage, inputs: StageInputs) -> bool:
    """Whether a stage passed before."""
    return stage.name in inputs.record.passed


def _progress(
    by_node: Mapping[str, NodePods], steps: NodeSteps, candidates: Candidates, inputs: StageInputs
) -> tuple[tuple[tuple[str, ...], ...], AttributedNodes]:
    """The members of the stages, and the progress of each."""
    members = stage_members.members(inputs.policy, candidates, inputs.pools)
    return members, steps.attributed(
        {
            name: steps.of(by_node[name], stage, is_passed=is_passed(stage, inputs))
            for stage, stage_nodes in zip(inputs.policy.stages, members, strict=True)
            for name in stage_nodes
        }
    )


def _lost(
    members: Sequence[Sequence[str]],
    attributed: AttributedNodes,
    inputs: StageInputs,
    canary: Stage | None,
) -> frozenset[str]:
    """The nodes that were set aside in stages of a number of nodes that did not pass, and of which
    no other node can be proved. `canary` is a first stage that takes a node of another one.
    """
    lost = set[str]()
    for stage, stage_nodes in zip(inputs.policy.stages, members, strict=True):
        is_counted = stage.nodes is not None or stage is canary
        if inputs.target.staged and is_counted and not is_passed(stage, inputs):
            steps = {name: attributed.nodes[name].step for name in stage_nodes}
            if all(step in APART for step in steps.values()):
                lost |= {name for name in stage_nodes if steps[name] is NodeStep.SET_ASIDE}
    lost -= attributed.held
    return frozenset(lost)


def _is_risky(
    one: NodeProgress, node_pods: NodePods, steps: NodeSteps, inputs: StageInputs
) -> bool:
    """Whether a node is at risk: touched and not proved, or its agent broke during the rollout.

    A node whose agent was not ready before has nothing to lose until the new one is ready, and
    neither has one that is down: two of them halt the rollout.
    """
    if one.step is NodeStep.SET_ASIDE and one.reason in DOWN:
        return False
    if not inputs.target.staged:
        # The node of a deleted pod has none until the next one is created.
        touched = (pod.created > inputs.target.since for pod in node_pods.staying)
        return one.step in TOUCHED and (any(touched) or not node_pods.staying)
    if one.step is NodeStep.WAITING and one.reason:
        return steps.broke_since(node_pods)
    if one.step is NodeStep.PROVED and one.reason:
        return not any(pod.ready for pod in node_pods.staying)
    return one.step in TOUCHED and not (one.heals and one.step is not NodeStep.SOAKING)
