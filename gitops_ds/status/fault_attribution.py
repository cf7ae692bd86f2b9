"""The cause of an unhealthy agent on each node: the template, the node, the cluster, or the design.

An unhealthy node is the cause regardless of the status of its pod. Otherwise pods are compared: a
template that fails on more nodes of a kind than it runs on is the cause, else the nodes are. Nodes
that joined after the template was written are not evidence against it: a change is judged by the
nodes at its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from gitops_ds.core.daemonset import OnDelete, Pod, PodCause
from gitops_ds.core.health import Blame, NodeHealth
from gitops_ds.core.live import Node
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget
from gitops_ds.core.values import replace
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, pod_cause
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.rollouts.decisions import failures, node_steps
from gitops_ds.rollouts.decisions.node_steps import LEAVING
from gitops_ds.rollouts.state import daemonset_statements, target_revisions
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout

DEADLINE = 600.0  # seconds without progress; a Deployment's default progressDeadlineSeconds

# Reasons of containers and pods that an error in the template can cause. Any other reason is
# attributed to the node.
_TEMPLATE_REASONS = failures.TEMPLATE_REASONS | {"NotReady"}
# the message of a starting pod, by its readiness
_STARTING = {
    False: "the pod is not ready yet",
    True: "the pod is ready, and available after minReadySeconds",
}
_ABSENT = {"Terminating": "the earlier pod has not ended yet"}
_SETTLES = "the pod restarted, and has not run for long enough since"
ON_ITS_WAY = frozenset({"NoPod", "Starting", "Outdated", "Terminating"})
OUTDATED, JOINING = "Outdated", "Joining"

# Taints that report the state of a node. They do not exclude an agent, which remains eligible for
# the node.
# https://kubernetes.io/docs/reference/labels-annotations-taints/
_ILL = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/out-of-service",
    }
)
_COMING = frozenset(
    {"node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/network-unavailable"}
)
NODES_OWN = _ILL | _COMING | LEAVING


class FaultScope(msgspec.Struct, frozen=True):
    """The `deadline` in seconds, and the reason why pods are refused at present, else empty.

    `rollout` is the staged rollout in progress, if any; `warnings` are the newest warning events of
    pods that are not well, by their UID.
    """

    deadline: float = DEADLINE
    refused: str = ""
    rollout: StagedRollout | None = None
    warnings: Mapping[str, PodCause] = msgspec.field(default_factory=dict)


class NodeFaults(msgspec.Struct, frozen=True):
    """The number of nodes that must run an agent (`eligible`), and an entry for each without a
    healthy one of the current template.

    `again` is the next time at which the result changes without an event.
    """

    eligible: int
    nodes: tuple[NodeHealth, ...]
    again: float | None = None


def by_itself(placer: Placer, node: Node) -> Placement:
    """The placement of the pod by labels and taints of the node, without those of its state."""
    if not any(taint.key in NODES_OWN for taint in node.taints):
        return placer.place(node)
    return placer.place(
        replace(node, taints=tuple(taint for taint in node.taints if taint.key not in NODES_OWN))
    )


def judge(layout: NodePodLayout, scope: FaultScope) -> NodeFaults:
    """The faults of all nodes that must run an agent."""
    return _Judge(layout, scope).all()


class _Judge:
    def __init__(self, layout: NodePodLayout, scope: FaultScope) -> None:
        self.layout, self.scope, self.now = layout, scope, layout.seen.now
        daemonset = layout.seen.daemonset
        # With a rollout policy OnDelete is part of the staged rollout, not a setting of the user.
        self.paced = bool(daemonset_statements.policy(daemonset.annotations))
        self.target = scope.rollout.target if scope.rollout else self._proven()
        on_delete = isinstance(daemonset.strategy, OnDelete) and not self.paced
        self.parks = on_delete or daemonset.suspended
        self.began = (
            scope.rollout.stages.record.began if scope.rollout else daemonsets.changed_at(daemonset)
        )
        self.nodes = {node.name: node for node in layout.seen.nodes}
        self.well: Counter[tuple[str, ...]] = Counter()
        self.failing: Counter[tuple[str, ...]] = Counter()
        self.times: list[float] = []

    def all(self) -> NodeFaults:
        placer = node_eligibility.read(self.layout.seen.daemonset.template)
        needing = [
            node_pods
            for node_pods in self.layout.nodes
            if node_pods.wanted or self._would_run(node_pods, placer)
        ]
        frozen = {node_pods.node for node_pods in needing if not self._joined(node_pods.node)} or {
            node_pods.node for node_pods in needing
        }
        open_nodes, well = [], []
        for node_pods in needing:
            pod = self._pod(node_pods)
            if pod is not None and self._is_well(pod):
                well.append((pod, node_pods.node))
                if self._updated(pod):
                    continue
            elif (
                pod is not None
                and node_pods.node in frozen
                and not self._ill(node_pods.node)
                and self._reason(pod) in _TEMPLATE_REASONS
            ):
                self.failing[self._kind(pod, node_pods.node)] += 1
            open_nodes.append((node_pods, pod))
        if self.failing:
            self.well.update(self._kind(pod, node) for pod, node in well)
        faulty = tuple(
            self._blame(node_pods, pod, node_pods.node in frozen) for node_pods, pod in open_nodes
        )
        return NodeFaults(
            len(needing),
            faulty,
            min((time for time in self.times if time > self.now), default=None),
        )

    def _proven(self) -> RolloutTarget | None:
        """The proven template of a DaemonSet with a rollout policy, outside of a rollout: after an
        edit the DaemonSet has another one, that no pod gets.
        """
        seen = self.layout.seen
        if not self.paced or daemonset_statements.has_target(seen.daemonset.annotations):
            return None
        return target_revisions.target_of(seen.daemonset, seen.revisions)

    def _updated(self, pod: Pod) -> bool:
        """Whether the pod runs the wanted template: that of the rollout or the proven one, without
        a rollout policy the DaemonSet's.
        """
        if self.target is None:
            return self.layout.updated(pod)
        return node_steps.runs_target(self.layout, self.target, pod)

    def _would_run(self, node_pods: NodePods, placer: Placer) -> bool:
        """Whether only the state of the node keeps the agent away. A node that is about to be
        removed needs none.
        """
        node = self.nodes.get(node_pods.node)
        if node is None or not node.taints or any(taint.key in LEAVING for taint in node.taints):
            return False
        return by_itself(placer, node) is Placement.RUN

    def _joined(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and self.began is not None and node.created > self.began

    def _kind(self, pod: Pod, name: str) -> tuple[str, ...]:
        """The template, and the operating system and architecture of the node."""
        labels = self.nodes[name].labels
        is_updated = self._updated(pod)
        return (
            ("" if is_updated else pod.hash),
            labels.get("kubernetes.io/os", ""),
            labels.get("kubernetes.io/arch", ""),
        )

    def _pod(self, node_pods: NodePods) -> Pod | None:
        staying = [pod for pod in node_pods.staying if not pod.waits]
        if len(staying) < 2:
            return staying[0] if staying else None
        return next((pod for pod in staying if self._updated(pod)), staying[0])

    def _blame(self, node_pods: NodePods, pod: Pod | None, frozen: bool) -> NodeHealth:
        name = node_pods.node
        if pod is not None and self._is_well(pod):
            if self.paced and (ill := self._ill(name)):  # parked until the node is well
                return NodeHealth(name, ill, Blame.NODE, f"{pod.name} runs an earlier template")
            blame = Blame.DESIGN if self.parks else Blame.UNKNOWN
            return NodeHealth(name, OUTDATED, blame, f"{pod.name} runs an earlier template")
        reason = self._without(node_pods) if pod is None else self._reason(pod)
        cause = self._cause(pod, reason)
        if ill := self._ill(name) or (
            "" if node_pods.wanted or self._joins(name) else "NodeNotReady"
        ):
            message = f"{cause.message or reason}, on an unhealthy node"
            return NodeHealth(name, ill, Blame.NODE, message)
        if reason in ON_ITS_WAY and self._joins(name):
            return NodeHealth(
                name, JOINING, Blame.UNKNOWN, "the node joined after the change began"
            )
        if reason == "Refused":
            return NodeHealth(name, reason, Blame.CLUSTER, cause.message)
        if reason in ON_ITS_WAY:
            return NodeHealth(name, reason, Blame.UNKNOWN, cause.message)
        if pod is None or reason not in _TEMPLATE_REASONS:
            return NodeHealth(name, cause.reason, Blame.NODE, cause.message)
        if not self.parks and not self._updated(pod):
            fails = ": ".join(filter(None, (cause.reason, cause.message)))
            message = f"{pod.name} runs an earlier template, and fails: {fails}"
            return NodeHealth(name, OUTDATED, Blame.UNKNOWN, message)
        kind = self._kind(pod, name)
        blame = Blame.TEMPLATE if frozen and self.failing[kind] > self.well[kind] else Blame.NODE
        return NodeHealth(name, cause.reason, blame, cause.message)

    def _cause(self, pod: Pod | None, reason: str) -> PodCause:
        """The reason and message to show for a node without a healthy agent, without secrets: the
        message of a container's end may be the end of its log.
        """
        if pod is None:
            return PodCause(reason, {"Refused": self.scope.refused, **_ABSENT}.get(reason, ""))
        warning = self.scope.warnings.get(pod.uid)
        cause = PodCause(reason, f"{warning.reason}: {warning.message}" if warning else "")
        if reason != "Starting":
            cause = pod_cause.shown(pod, reason, self.scope.warnings)
        elif pod.ready and pod.settles_at > self.now:
            cause = PodCause(reason, f"{_SETTLES}: {pod.message}")
        return PodCause(cause.reason, texts.words(cause.message) or _STARTING[pod.ready])

    def _is_well(self, pod: Pod) -> bool:
        """Whether a pod is available, and has run for long enough since its last restart."""
        return self.layout.available(pod) and pod.settles_at <= self.now

    def _without(self, node_pods: NodePods) -> str:
        """The reason of a node without a pod that remains."""
        if node_pods.pods:
            return "Terminating"
        return "Refused" if self.scope.refused else "NoPod"

    def _ill(self, name: str) -> str:
        """The reason why the node itself is unhealthy, else empty."""
        node = self.nodes.get(name)
        if node is None:
            return "NodeGone"
        if not node.ready:
            return "" if self._joins(name) else "NodeNotReady"
        if node.deleting or any(taint.key in LEAVING for taint in node.taints):
            return "NodeDeleting"
        if node.troubles:
            return node.troubles[0]
        return "NodeCordoned" if node.unschedulable else ""

    def _joins(self, name: str) -> bool:
        """Whether the node joined after the change began and less than a deadline ago."""
        if not self._joined(name):
            return False
        until = self.nodes[name].created + self.scope.deadline
        self.times.append(until)
        return self.now < until

    def _reason(self, pod: Pod) -> str:
        """The reason why a pod is not well. A recent crash remains the reason while the container
        runs again; a pod that is ready after its first one only starts.
        """
        if pod.trouble:
            return pod.trouble
        if pod.ready:
            available_at = pod.available_at(self.layout.seen.daemonset.min_ready_seconds) or 0.0
            self.times += (available_at, pod.settles_at)
            is_loop = pod.restarts > 1 and pod.settles_at > self.now
            return "CrashLoopBackOff" if is_loop else "Starting"
        if pod.crashed_at is not None and self.now - pod.crashed_at < self.scope.deadline:
            return "CrashLoopBackOff"
        since = pod.ready_since if pod.ready_since is not None else pod.created
        self.times.append(since + self.scope.deadline)
        return "NotReady" if self.now - since >= self.scope.deadline else "Starting"
