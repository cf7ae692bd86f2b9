"""The progress of each node of a staged rollout, and the cause of a failure: the template or the
node.

A node is touched when it has a pod of the target, or none while an earlier one ends. A node that
was broken before is parked: it does not count, the rollout does not wait for it, and it is updated
when it is well again. A node that breaks afterwards failed; failure_cause has the rules for the
cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from gitops_ds.apimachinery import node_eligibility, pod_cause
from gitops_ds.apimachinery.node_eligibility import Placement
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.health import Blame
from gitops_ds.model.live import Node
from gitops_ds.model.rollouts.rollout_policy import Gate, RolloutPolicy, Stage
from gitops_ds.model.rollouts.staged_rollout import (
    FailedNode,
    NodeProgress,
    NodeStep,
    RolloutTarget,
    StageInputs,
)
from gitops_ds.model.values import replace
from gitops_ds.rollouts import failure_cause, stage_members
from gitops_ds.rollouts.failure_cause import OVERDUE, AttributedNodes

# Waiting reasons of a container that the template can cause. kubelet:
# pkg/kubelet/container/sync_result.go, pkg/kubelet/images.
TEMPLATE_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "Failed",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
# Taints of nodes that leave: https://kubernetes.io/docs/reference/labels-annotations-taints/
LEAVING = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
TOUCHED = frozenset(
    {
        NodeStep.REPLACING,
        NodeStep.STARTING,
        NodeStep.SOAKING,
        NodeStep.FAILED,
        NodeStep.SET_ASIDE,
    }
)


class NodeSteps:
    """The steps of the nodes of one observation."""

    def __init__(self, layout: NodePodLayout, inputs: StageInputs) -> None:
        self._layout, self._inputs = layout, inputs
        self._now = layout.seen.now
        self._placer = node_eligibility.read(inputs.target.template)
        self._nodes: Mapping[str, Node] = {node.name: node for node in layout.seen.nodes}
        self._placements: dict[str, Placement] = {}

    def is_excluded(self, node: Node) -> bool:
        """Whether the selectors and tolerations of the target exclude the node."""
        return self._place(node) is Placement.EVICT

    def _place(self, node: Node) -> Placement:
        placement = self._placements.get(node.name)
        if placement is None:
            placement = self._placements[node.name] = self._placer.place(node)
        return placement

    def is_target(self, pod: Pod) -> bool:
        """Whether the pod runs the target."""
        return runs_target(self._layout, self._inputs.target, pod)

    def of(self, node_pods: NodePods, stage: Stage, *, is_passed: bool) -> NodeProgress:
        """The step of one node. `is_passed`: its stage was passed, so its soak is over."""
        staying = node_pods.staying
        new = next((pod for pod in staying if self.is_target(pod)), None)
        progress = NodeProgress(node_pods.node, stage.name, NodeStep.WAITING)
        broken = self.problem(node_pods.node, stage)
        if new is not None and not new.ended:
            return self._touched(progress, new, stage, broken, is_passed=is_passed)
        if Placement.KEEP in (node_pods.placement, self._place(self._nodes[node_pods.node])):
            broken = broken or "NotEligible"
        old = next((pod for pod in staying if pod is not new), None)
        if old is None:
            if broken:
                return replace(progress, step=NodeStep.PARKED, reason=broken)
            return replace(progress, step=NodeStep.REPLACING, reason="NoPod")
        if broken:
            return replace(progress, step=NodeStep.PARKED, reason=broken)
        if not old.ready:
            reason = old.trouble or "NotReady"
            return replace(progress, step=NodeStep.PARKED, reason=reason, message=old.message)
        return progress

    def problem(self, name: str, stage: Stage) -> str:
        """Why a node is not well, in one word: by itself, or by a condition that the stage
        requires.
        """
        node, policy = self._nodes[name], self._inputs.policy
        conditions = policy.gate("nodes").conditions if "nodes" in stage.gates else ()
        fault = node_problem(node)
        if fault or not conditions:
            return fault
        return _violated(conditions, node.ready, (*node.conditions, *node.troubles))

    def broke_since(self, node_pods: NodePods) -> bool:
        """Whether the earlier pod of a parked node lost its readiness after the rollout began."""
        began = self._inputs.record.began
        return any(
            not pod.ready and pod.ready_since is not None and pod.ready_since > began
            for pod in node_pods.staying
            if not self.is_target(pod)
        )

    def _touched(
        self, progress: NodeProgress, pod: Pod, stage: Stage, broken: str, *, is_passed: bool
    ) -> NodeProgress:
        policy = self._inputs.policy
        failed = _failure(pod, stage, policy, self._now)
        minimum = self._layout.seen.daemonset.min_ready_seconds
        soak = max(stage.soak, minimum)
        node = self._nodes.get(progress.node)
        began = max(pod.created, pod.released, node.ready_since if node else 0.0)
        unstable_at = began + soak + policy.progress.per_node
        if not (failed or is_passed or pod.gated) and self._now > unstable_at:
            failed = "" if self._is_soaked(pod, soak) else "Unstable"
        if failed:
            step = NodeStep.SET_ASIDE if broken else NodeStep.FAILED
            cause = pod_cause.shown(pod, failed, self._inputs.warnings)
            return replace(
                progress, step=step, reason=broken or cause.reason, message=cause.message
            )
        if broken and (pod.gated or (broken != "NodeCordoned" and not is_passed)):
            return replace(progress, step=NodeStep.SET_ASIDE, reason=broken)
        if pod.gated:
            until = pod.created + policy.progress.per_node
            if until <= self._now:
                return replace(progress, step=NodeStep.REPLACING, reason=OVERDUE)
            return replace(progress, step=NodeStep.REPLACING, reason="Gated", until=until)
        available_at = pod.available_at(minimum)
        if available_at is None:
            if broken:
                return replace(progress, step=NodeStep.SET_ASIDE, reason=broken)
            until = _started(pod) + ready_within(stage, policy)
            return replace(progress, step=NodeStep.STARTING, until=min(until, unstable_at))
        if not is_passed and not self._is_soaked(pod, soak):
            until = (pod.ready_since or 0.0) + soak
            return replace(progress, step=NodeStep.SOAKING, until=until)
        return NodeProgress(progress.node, progress.stage, NodeStep.PROVED)

    def _is_soaked(self, pod: Pod, soak: float) -> bool:
        return pod.ready and (pod.ready_since or 0.0) + soak <= self._now

    def attributed(self, nodes: Mapping[str, NodeProgress]) -> AttributedNodes:
        """The same nodes; failures that nodes cause are set aside."""
        return failure_cause.attributed(nodes, self._kind)

    def _kind(self, name: str) -> tuple[str, str]:
        return stage_members.platform_of(self._nodes[name]) if name in self._nodes else ("", "")


def runs_target(layout: NodePodLayout, target: RolloutTarget, pod: Pod) -> bool:
    """Whether a pod runs the target: by its hash; without a target revision, by the rule for the
    DaemonSet's own pods.
    """
    if not target.revision:
        return layout.updated(pod)
    return pod.hash == target.hash


def node_problem(node: Node) -> str:
    """Why no pod of any template is well on the node, in one word; empty for a healthy node."""
    if not node.ready:
        return "NodeNotReady"
    if node.deleting or any(taint.key in LEAVING for taint in node.taints):
        return "NodeDeleting"
    if node.troubles:
        return node.troubles[0]
    return "NodeCordoned" if node.unschedulable else ""


def failed_nodes(attributed: AttributedNodes, *, waits: bool = False) -> tuple[FailedNode, ...]:
    """The failures that the template causes, by node; those without peers only if no node decides
    (`waits`).
    """
    failed = (
        attributed.nodes[name]
        for name in sorted(attributed.template | (frozenset() if waits else attributed.alone))
    )
    return tuple(FailedNode(one.node, one.reason, one.message, Blame.TEMPLATE) for one in failed)


def ready_within(stage: Stage, policy: RolloutPolicy) -> float:
    """The seconds that a new pod has until it is ready."""
    gate = policy.gate("pods") if "pods" in stage.gates else None
    return min(gate.ready_within if gate else policy.progress.per_node, policy.progress.per_node)


def _failure(pod: Pod, stage: Stage, policy: RolloutPolicy, now: float) -> str:
    """The reason in one word why a touched node fails; empty while it does not."""
    gate = policy.gate("pods") if "pods" in stage.gates else None
    if gate is not None:
        if pod.trouble in TEMPLATE_REASONS and not _is_allowed(gate, pod.trouble):
            return "OOMKilled" if pod.crash == "OOMKilled" else pod.trouble
        if pod.restarts > gate.restarts:
            return pod.crash if pod.crash == "OOMKilled" else "Restarted"
    if pod.ready or pod.gated or now - _started(pod) < ready_within(stage, policy):
        return ""
    return pod.trouble or "NotReady"


@lru_cache(1024)
def _violated(conditions: tuple[str, ...], ready: bool, present: tuple[str, ...]) -> str:
    """The first condition of the gate that the node does not meet; an unwanted one begins with
    `!`.
    """
    for condition in conditions:
        name = condition.removeprefix("!")
        holds = ready if name == "Ready" else name in present
        if holds == condition.startswith("!"):
            return name if condition.startswith("!") else f"Not{name}"
    return ""


def _started(pod: Pod) -> float:
    """When the pod began to start, or lost its readiness, in seconds since 1970."""
    return max(pod.created, pod.released, pod.ready_since or 0.0)


def _is_allowed(gate: Gate, reason: str) -> bool:
    return gate.reasons != "none" and reason in gate.reasons
