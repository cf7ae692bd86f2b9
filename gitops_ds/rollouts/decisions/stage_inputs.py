"""The inputs of a staged rollout that are in the objects of an observation, and in other rollouts.

Those hold it: the agents that it waits for (`after` in its policy), with the nodes on which they
are behind; and halts that affect others (`onFailure.scope: cluster`), until the halted one is
reverted, replaced or released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.live import Revision
from gitops_ds.core.rollouts.rollout_policy import After
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget, StageInputs
from gitops_ds.daemonset import decide, node_pods
from gitops_ds.kube.apimachinery import node_eligibility
from gitops_ds.rollouts.decisions.node_steps import node_problem, runs_target
from gitops_ds.rollouts.state import (
    daemonset_statements,
    halted_templates,
    rollout_annotations,
    target_revisions,
)


class OtherPods(Protocol):
    """The pods of a cluster that are not of the rollout."""

    @property
    def busy_nodes(self) -> frozenset[str]:
        """The nodes with pods other than those of DaemonSets and static pods."""
        ...

    def arrived(self, since: Mapping[str, float]) -> Mapping[str, str]:
        """By node, the first pod that was bound to it since a time and has not ended:
        NAMESPACE/NAME.
        """
        ...


def observed(seen: Observation) -> StageInputs | None:
    """The inputs that an observation contains.

    None without a policy, and while its target revision is not known. Raises ValueError for a
    policy that can't be read.
    """
    daemonset = seen.daemonset
    policy_and_pools = target_revisions.policy_of(daemonset)
    target = target_revisions.target_of(daemonset, seen.revisions)
    if (
        policy_and_pools is None
        or target is None
        or daemonset.deleting
        or daemonset.selector is None
    ):
        return None
    policy, pools = policy_and_pools
    approvals = rollout_annotations.approvals(seen.revisions, target)
    record = target_revisions.record_of(seen.revisions, target)
    return StageInputs(
        policy,
        target,
        record,
        pools,
        approved=frozenset(approval.stage for approval in approvals),
        approvals=approvals,
        refused=record.refused,
        refuses=record.refuses,
        held=halted_templates.hold_reason(daemonset.annotations, target) if target.staged else "",
        halted=frozenset(halted.hash for halted in halted_templates.parse(daemonset.annotations)),
        foreign=next(rollout_annotations.edited(daemonset), ""),
        moved=target.staged and _is_moved(seen, target),
    )


def _is_moved(seen: Observation, target: RolloutTarget) -> bool:
    """Whether the DaemonSet selects its nodes neither as the proven template nor as the target. A
    rollout is complete when every node is, so an edit that removes nodes would complete it.
    """
    proven = target_revisions.proven_template(seen.daemonset, seen.revisions)
    known = (target.template, *([proven] if proven else ()))
    live = node_eligibility.read(seen.daemonset.template)
    return all(node_eligibility.read(content) != live for content in known)


def unplaced(seen: Observation, target: RolloutTarget) -> Mapping[str, float]:
    """The nodes on which a pod of the target has no place, and when each pod was created."""
    waiting = node_pods.waiting(seen.pods)
    return {
        pod.node: pod.created
        for pod in seen.pods
        if pod.trouble
        and not (pod.bound or pod.ended or pod.uid in waiting)
        and pod.hash in target.hashes
    }


def behind(
    after: Sequence[After], observations: Iterable[Observation]
) -> Mapping[str, frozenset[str]]:
    """By agent, the healthy nodes that do not run its latest template with a ready pod; agents
    without such nodes, or without a DaemonSet in this cluster, are absent.
    """
    agents = {key.agent for key in after}
    by_agent: dict[str, frozenset[str]] = {}
    for seen in observations if agents else ():
        agent = agent_of(seen.daemonset)
        if agent in agents and (nodes := _behind(seen)):
            by_agent[agent] = by_agent.get(agent, frozenset()) | nodes
    return by_agent


def agent_of(daemonset: DaemonSet) -> str:
    """The agent of a DaemonSet by the path of its file in Git, else its name."""
    path = daemonset.annotations.get(names.PATH, "").split("/")
    return path[1] if len(path) > 2 and path[0] == "agents" else daemonset.key.name


def _behind(seen: Observation) -> frozenset[str]:
    layout = decide.layout(seen)
    target = target_revisions.target_of(seen.daemonset, seen.revisions)
    target = target or RolloutTarget("", seen.daemonset.template)
    nodes = {node.name: node for node in seen.nodes}
    return frozenset(
        node_pods.node
        for node_pods in layout.nodes
        if node_pods.wanted
        and not node_problem(nodes[node_pods.node])
        and not any(pod.ready and runs_target(layout, target, pod) for pod in node_pods.staying)
    )


Rollout = tuple[DaemonSet, Sequence[Revision]]


def halt_elsewhere(daemonset: DaemonSet, others: Iterable[Rollout]) -> str:
    """Why another rollout halts the rollout of a DaemonSet; empty if none does."""
    for other, revisions in others:
        if other.uid == daemonset.uid or _repository(other) != _repository(daemonset):
            continue
        if (message := _halt(other, revisions)) is not None:
            return f"the rollout of {other.key} is halted (onFailure.scope: cluster): {message}"
    return ""


def _repository(daemonset: DaemonSet) -> str:
    return daemonset.annotations.get(names.REPOSITORY, "")


def _halt(daemonset: DaemonSet, revisions: Sequence[Revision]) -> str | None:
    """The message of a halt that affects others, None without one."""
    if not daemonset_statements.target_name(daemonset.annotations):
        return None
    try:
        policy_and_pools = target_revisions.policy_of(daemonset)
    except ValueError:
        return None
    target = target_revisions.target_of(daemonset, revisions)
    if (
        policy_and_pools is None
        or target is None
        or policy_and_pools[0].on_failure.scope != "cluster"
    ):
        return None
    halt = target_revisions.record_of(revisions, target).halt
    return None if halt is None else halt.message
