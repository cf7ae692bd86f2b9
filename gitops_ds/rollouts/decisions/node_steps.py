"""The progress of each node of a staged rollout, and the cause of a failure: the template or the
node.

A node is touched when it has a pod of the target, or none while an earlier one ends. A node that
was broken before is parked: it does not count, the rollout does not wait for it, and it is updated
when it is well again. An agent that is not ready on a well node is a reason to update it. A node
that breaks after the touch failed; failures has the rules for the cause. What happens after
the proof, or by a reboot, does not count as a failure of the node in its rollout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache

from gitops_ds.core.daemonset import Pod, PodContent
from gitops_ds.core.health import Blame
from gitops_ds.core.live import Node
from gitops_ds.core.rollouts.rollout_policy import Stage
from gitops_ds.core.rollouts.staged_rollout import (
    FailedNode,
    NodeProgress,
    NodeStep,
    RolloutTarget,
    StageInputs,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.kube.apimachinery import node_eligibility, pod_cause, pod_contents, pod_demands
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from gitops_ds.kube.apimachinery.pod_demands import Growth
from gitops_ds.rollouts.decisions import failures, stage_members, symptoms
from gitops_ds.rollouts.decisions.failures import OVERDUE, REPLACED, AttributedNodes, TouchedPod
from gitops_ds.rollouts.state import proofs, target_revisions

# Taints of nodes that leave: https://kubernetes.io/docs/reference/labels-annotations-taints/
LEAVING = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
WAITS = "EarlierPodEnds"  # the reason of a node whose pinned pod waits
# problems of a node without any agent
DOWN = frozenset({"NodeNotReady", "NodeDeleting", REPLACED})
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
        self._now, self._min_ready = layout.seen.now, layout.seen.daemonset.min_ready_seconds
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
        """Whether the pod runs the target, and is not of an edit."""
        if not runs_target(self._layout, self._inputs.target, pod):
            return False
        return not self._has_edits or not _is_of_edit(self._inputs.target, pod)

    @cached_property
    def _has_edits(self) -> bool:
        """Whether pods of the target without a label of its rollout are of an edit: the DaemonSet
        controller makes such pods only while the DaemonSet has the template, which a rollout gives
        it early or at its end.
        """
        target = self._inputs.target
        return target.staged and not self._inputs.record.early and bool(target.since)

    def of(self, node_pods: NodePods, stage: Stage, *, is_passed: bool) -> NodeProgress:
        """The step of one node. `is_passed`: its stage was passed, so its soak is over."""
        staying = node_pods.staying
        new = next((pod for pod in staying if self.is_target(pod)), None)
        progress = NodeProgress(node_pods.node, stage.name, NodeStep.WAITING)
        broken = self.problem(node_pods.node, stage)
        if new is not None and not new.ended:
            if not self._inputs.target.staged:
                return self._restored(progress, new, stage)
            pod = TouchedPod.of(new, self._nodes.get(node_pods.node), stage, self._min_ready)
            passed_at = self._inputs.record.passed.get(stage.name) if is_passed else None
            if broken and self._nodes[node_pods.node].created > pod.touched:
                broken = REPLACED
            within = failures.ready_within(stage, self._inputs.policy)
            if pod.is_closed(passed_at, within):
                return self._closed(progress, pod, stage, broken)
            # A node that was touched later takes the place of one that left the stage, and soaks.
            is_passed = passed_at is not None and pod.touched <= passed_at
            return self._touched(progress, pod, stage, broken, is_passed=is_passed)
        if Placement.KEEP in (node_pods.placement, self._place(self._nodes[node_pods.node])):
            broken = broken or "NotEligible"
        old = next((pod for pod in staying if pod is not new), None)
        if broken:
            return replace(progress, step=NodeStep.PARKED, reason=broken)
        if old is None:
            return replace(progress, step=NodeStep.REPLACING, reason="NoPod")
        if not old.ready:
            cause = pod_cause.shown(old, old.trouble or "NotReady", self._inputs.warnings)
            within = failures.ready_within(stage, self._inputs.policy)
            until = failures.broken_at(old, within)
            return replace(
                progress,
                reason=cause.reason,
                message=cause.message,
                until=until if self._now < until else None,
            )
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
        """Whether the earlier pod of a node lost its readiness after the rollout began. One that
        got its node since, or in the same second (times of Kubernetes are whole seconds), had none
        to lose: the kubelet states that it is not ready when it first sees it.
        """
        began = self._inputs.record.began
        return any(
            not pod.ready
            and max(pod.created, pod.placed) < math.floor(began)
            and began < (pod.ready_since or 0.0)
            for pod in node_pods.staying
            if not self.is_target(pod)
        )

    def _touched(
        self,
        progress: NodeProgress,
        pod: TouchedPod,
        stage: Stage,
        broken: str,
        *,
        is_passed: bool,
    ) -> NodeProgress:
        """The step of a node between its touch and its proof."""
        policy, body = self._inputs.policy, pod.pod
        progress = replace(progress, heals=body.heals)
        unstable_at = pod.began + pod.soak + policy.progress.per_node
        failed = failures.failure(pod, stage, policy, self._now)
        if not (failed or is_passed or body.waits) and self._now > unstable_at:
            failed = "" if pod.is_soaked(self._now) else "Unstable"
        if failed:
            step = NodeStep.SET_ASIDE if broken else NodeStep.FAILED
            cause = pod_cause.shown(body, failed, self._inputs.warnings)
            return replace(
                progress,
                step=step,
                reason=broken or cause.reason,
                message=cause.message,
                cause="" if broken else self._others(body, failed),
            )
        if broken and (body.waits or (broken != "NodeCordoned" and not is_passed)):
            return replace(progress, step=NodeStep.SET_ASIDE, reason=broken)
        if body.waits:
            until = body.created + policy.progress.per_node
            if until <= self._now:
                return replace(progress, step=NodeStep.REPLACING, reason=OVERDUE)
            return replace(progress, step=NodeStep.REPLACING, reason=WAITS, until=until)
        if body.available_at(self._min_ready) is None:
            if broken:
                return replace(progress, step=NodeStep.SET_ASIDE, reason=broken)
            until = min(pod.started + failures.ready_within(stage, policy), unstable_at)
            return replace(progress, step=NodeStep.STARTING, until=until)
        if not is_passed and not pod.is_soaked(self._now):
            return replace(progress, step=NodeStep.SOAKING, until=pod.soaked_at)
        ran = self._now - pod.touched
        return NodeProgress(progress.node, progress.stage, NodeStep.PROVED, ran=ran)

    def _closed(
        self, progress: NodeProgress, pod: TouchedPod, stage: Stage, broken: str
    ) -> NodeProgress:
        """The step of a node whose proof is older than its present state: it stays proved. Its
        failure is evidence against the template only beside that of peers, for a while.
        """
        policy, body = self._inputs.policy, pod.pod
        proved = replace(progress, step=NodeStep.PROVED, ran=self._now - pod.touched)
        if broken and not body.ready:
            return replace(proved, reason=broken, ran=0.0)
        failed = failures.failure(pod, stage, policy, self._now)
        until = body.last_end + policy.progress.per_node
        if body.ready and (not failed or pod.rebooted or until <= self._now):
            return proved
        if not failed:
            until = pod.started + failures.ready_within(stage, policy)
            return replace(proved, reason="NotReady", until=until, ran=0.0)
        ran = (body.last_end or body.ready_since or self._now) - pod.touched
        cause = pod_cause.shown(body, failed, self._inputs.warnings)
        ran = 0.0 if self._others(body, failed) else max(1.0, ran)
        return replace(proved, reason=cause.reason, message=cause.message, until=until, ran=ran)

    def _others(self, pod: Pod, failed: str) -> str:
        """What causes a failure instead of the template, empty if the template does."""
        if pod.bound and failed not in ("NotReady", pod.trouble):
            return ""
        if not (cause := symptoms.cause(pod, self._growth, self._denied)):
            return ""
        arrived = "" if pod.bound else self._inputs.arrived.get(pod.node, "")
        return f"{cause} ({arrived} came since)" if arrived else cause

    @cached_property
    def _growth(self) -> Growth:
        """What the target demands beyond the proven template; nothing if that one is unknown."""
        seen = self._layout.seen
        proven = target_revisions.proven_template(seen.daemonset, seen.revisions)
        return pod_demands.growth(self._inputs.target.template, proven) if proven else Growth()

    @cached_property
    def _denied(self) -> frozenset[str]:
        """The registries that deny images of the proven template too."""
        proven = self._inputs.target.proven
        pods = (pod for node in self._layout.nodes for pod in node.staying if pod.hash in proven)
        return frozenset(name for pod in pods for name in symptoms.denied(pod))

    def _restored(self, progress: NodeProgress, pod: Pod, stage: Stage) -> NodeProgress:
        """The step of a node with the proven template, outside of rollouts."""
        if pod.waits:
            return replace(progress, step=NodeStep.REPLACING, reason=WAITS)
        if pod.available_at(self._min_ready) is not None:
            return replace(progress, step=NodeStep.PROVED)
        until = failures.started(pod) + failures.ready_within(stage, self._inputs.policy)
        if self._now < until:
            return replace(progress, step=NodeStep.STARTING, until=until)
        cause = pod_cause.shown(pod, pod.trouble or "NotReady", self._inputs.warnings)
        return replace(
            progress, step=NodeStep.SET_ASIDE, reason=cause.reason, message=cause.message
        )

    @cached_property
    def _owned(self) -> frozenset[str]:
        own_revisions = self._layout.seen.revisions
        return frozenset(
            revision.hash for revision in own_revisions if target_revisions.is_promoted(revision)
        )

    def is_abandoned(self, pod: Pod) -> bool:
        """Whether a pod runs a template that is neither the target nor proven: of a rollout that
        was reverted or replaced, or of an edit since the proven template is in force.

        An edited DaemonSet would make the pod of an edit again, so that one counts after the edit.
        """
        target = self._inputs.target
        if self.is_target(pod) or pod.hash in target.proven:
            return False
        if pod.pinned:
            made_since = bool(target.since) and pod.created > target.since
            return (made_since or pod.hash not in self._owned) and self._runs_other(pod)
        is_known = pod.hash in self._layout.outdated or pod.hash in target.hashes
        return self._is_unedited and pod.created > target.since and is_known

    def _runs_other(self, pod: Pod) -> bool:
        """Whether a pod is known to run another template than the proven one. The hash of a deleted
        revision, or one that another client wrote, states nothing: then its containers do.
        """
        if pod.hash in self._known_hashes:
            return True
        proven = self._proven_content
        return (
            proven is not None
            and pod.content is not None
            and bool(pod_contents.difference(proven, pod.content))
        )

    @cached_property
    def _known_hashes(self) -> frozenset[str]:
        hashes = map(proofs.hash_of, self._layout.seen.revisions)
        return self._inputs.halted.union(filter(None, hashes))

    @cached_property
    def _proven_content(self) -> PodContent | None:
        seen = self._layout.seen
        proven = target_revisions.proven_template(seen.daemonset, seen.revisions)
        return pod_contents.of_template(proven) if proven is not None else None

    @cached_property
    def _is_unedited(self) -> bool:
        """Whether the DaemonSet has the proven template, so that new pods have it too."""
        daemonset = self._layout.seen.daemonset
        proof = proofs.in_force(daemonset.annotations)
        return proof is not None and proof.template == proofs.identity(daemonset.template)

    def attributed(self, nodes: Mapping[str, NodeProgress]) -> AttributedNodes:
        """The same nodes; failures that nodes cause are set aside."""
        return failures.attributed(nodes, self._kind)

    def _kind(self, name: str) -> tuple[str, str]:
        return stage_members.platform_of(self._nodes[name])


def runs_target(layout: NodePodLayout, target: RolloutTarget, pod: Pod) -> bool:
    """Whether a pod runs the target: by its hash, and by its containers if they are known: others
    may give their pods the label. A pod that the DaemonSet controller made may have the hash of a
    deleted revision; its template generation counts as well.
    """
    if pod.hash in target.hashes:
        return _has_content(target.contents, pod)
    if target.staged or target.edited or pod.pinned:
        return False
    return layout.updated(pod)


def _has_content(contents: tuple[PodContent, ...], pod: Pod) -> bool:
    """Whether a pod runs one of these. Admission adds digests when a pod is created: another one in
    a changed pod is of a person.
    """
    if not contents or pod.content is None:
        return not contents
    return any(
        not pod_contents.difference(content, pod.content, exact=pod.changed) for content in contents
    )


def _is_of_edit(target: RolloutTarget, pod: Pod) -> bool:
    """Whether the DaemonSet controller made a pod since the proven template is in force."""
    return not pod.pinned and pod.created > target.since


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
    return tuple(
        FailedNode(failure.node, failure.reason, failure.message, Blame.TEMPLATE)
        for failure in failed
    )


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
