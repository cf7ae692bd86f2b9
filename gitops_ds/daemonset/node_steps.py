"""How far each node of a staged rollout is, and the cause of a failure: the template or the node.

A node is touched when it has a pod of the target, or none while an earlier one ends. A node that was broken before is parked:
it is not counted, not waited for, and updated when it is well again. A node that breaks afterwards failed; when more touched
nodes of its kind (operating system and architecture) fail than run the target, the template is the cause, else the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.decision import Blame
from gitops_ds.model.live import Node
from gitops_ds.model.rollout_policy import Gate, RolloutPolicy, Stage
from gitops_ds.model.staged_rollout import (
    FailedNode,
    NodeProgress,
    NodeStep,
    RolloutTarget,
    StageInputs,
)

# Waiting reasons of a container that the template can cause. kubelet: pkg/kubelet/container/sync_result.go, pkg/kubelet/images.
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
# Taints of nodes that leave or are not well by themselves: https://kubernetes.io/docs/reference/labels-annotations-taints/
_LEAVING = frozenset(
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
        self._nodes: Mapping[str, Node] = {node.name: node for node in layout.seen.nodes}

    def is_target(self, pod: Pod) -> bool:
        """Whether the pod runs the target."""
        return runs_target(self._layout, self._inputs.target, pod)

    def of(self, spot: NodePods, stage: Stage, *, is_passed: bool) -> NodeProgress:
        """The step of one node. `is_passed`: its stage was passed, so its soak is over."""
        staying = spot.staying
        new = next((pod for pod in staying if self.is_target(pod)), None)
        progress = NodeProgress(spot.node, stage.name, NodeStep.WAITING)
        broken = node_problem(self._nodes.get(spot.node))
        if new is not None and not new.ended:
            return self._touched(progress, new, stage, broken, is_passed=is_passed)
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

    def broke_since(self, spot: NodePods) -> bool:
        """Whether the earlier pod of a parked node lost its readiness after the rollout began."""
        began = self._inputs.record.began
        return any(
            not pod.ready and pod.ready_since is not None and pod.ready_since > began
            for pod in spot.staying
            if not self.is_target(pod)
        )

    def _touched(
        self, progress: NodeProgress, pod: Pod, stage: Stage, broken: str, *, is_passed: bool
    ) -> NodeProgress:
        policy = self._inputs.policy
        failed = _failure(pod, stage, policy, self._now)
        if failed:
            step = NodeStep.SET_ASIDE if broken else NodeStep.FAILED
            return replace(
                progress, step=step, reason=broken or failed, message=pod.message or pod.name
            )
        minimum = self._layout.seen.daemonset.min_ready_seconds
        if pod.gated:
            return replace(progress, step=NodeStep.REPLACING, reason="Gated")
        available_at = pod.available_at(minimum)
        if available_at is None:
            if broken:
                return replace(progress, step=NodeStep.SET_ASIDE, reason=broken)
            until = _started(pod) + ready_within(stage, policy)
            return replace(progress, step=NodeStep.STARTING, until=until)
        soaked_at = (pod.ready_since or 0.0) + max(stage.soak, minimum)
        if not is_passed and soaked_at > self._now:
            return replace(progress, step=NodeStep.SOAKING, until=soaked_at)
        return replace(progress, step=NodeStep.PROVED)

    def attributed(self, nodes: Mapping[str, NodeProgress]) -> dict[str, NodeProgress]:
        """The same nodes; failures that the node causes are set aside."""
        failing, well = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for one in nodes.values():
            failing[self._kind(one.node)] += one.step is NodeStep.FAILED
            well[self._kind(one.node)] += one.step in (NodeStep.SOAKING, NodeStep.PROVED)
        return {
            name: replace(one, step=NodeStep.SET_ASIDE)
            if one.step is NodeStep.FAILED and failing[self._kind(name)] <= well[self._kind(name)]
            else one
            for name, one in nodes.items()
        }

    def _kind(self, name: str) -> tuple[str, str]:
        labels = self._nodes[name].labels if name in self._nodes else {}
        return labels.get("kubernetes.io/os", ""), labels.get("kubernetes.io/arch", "")


def runs_target(layout: NodePodLayout, target: RolloutTarget, pod: Pod) -> bool:
    """Whether a pod runs the target: by its hash, and without a target revision as the DaemonSet's own pods."""
    if not target.revision:
        return layout.updated(pod)
    return pod.hash == target.hash


def node_problem(node: Node | None) -> str:
    """Why no pod of any template is well on the node, in one word; empty for a healthy node."""
    if node is None:
        return "NodeGone"
    if not node.ready:
        return "NodeNotReady"
    if node.deleting or any(taint.key in _LEAVING for taint in node.taints):
        return "NodeDeleting"
    if node.troubles:
        return node.troubles[0]
    return "NodeCordoned" if node.unschedulable else ""


def failed_nodes(nodes: Mapping[str, NodeProgress]) -> tuple[FailedNode, ...]:
    """The failures that the template causes, by node."""
    return tuple(
        FailedNode(one.node, one.reason, one.message, Blame.TEMPLATE)
        for one in sorted(nodes.values(), key=lambda one: one.node)
        if one.step is NodeStep.FAILED
    )


def ready_within(stage: Stage, policy: RolloutPolicy) -> float:
    """The seconds that a new pod has until it is ready."""
    gate = policy.gate("pods") if "pods" in stage.gates else None
    return min(gate.ready_within if gate else policy.progress.per_node, policy.progress.per_node)


def _failure(pod: Pod, stage: Stage, policy: RolloutPolicy, now: float) -> str:
    """The reason in one word why a touched node fails; empty while it does not."""
    gate = policy.gate("pods") if "pods" in stage.gates else None
    if gate is not None:
        if pod.trouble in TEMPLATE_REASONS and not _is_allowed(gate, pod.trouble):
            return pod.trouble
        if pod.restarts > gate.restarts:
            return "Restarted"
    if pod.ready or pod.gated or now - _started(pod) < ready_within(stage, policy):
        return ""
    return pod.trouble or "NotReady"


def _started(pod: Pod) -> float:
    """When the pod began to start, or lost its readiness, in seconds since 1970."""
    return max(pod.created, pod.released, pod.ready_since or 0.0)


def _is_allowed(gate: Gate, reason: str) -> bool:
    return gate.reasons != "none" and reason in gate.reasons
