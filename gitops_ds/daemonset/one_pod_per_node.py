"""Ensures exactly one pod on each node that needs one, and none on other nodes.

Upstream: `manage` and `podsShouldBeOnNode` of daemon_controller.go. Each node is examined
independently, without a budget; a rollout continues only when this module changes nothing.
"""

from __future__ import annotations

from gitops_ds.core.daemonset import Phase, Pod, RollingUpdate
from gitops_ds.core.decision import CreatePod, DeleteCause, DeletePod, FailedPodBackoff
from gitops_ds.daemonset import memory, pod_changes
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.pod_changes import PodChanges, PodFactory
from gitops_ds.kube.apimachinery.node_eligibility import Placement


def changes(layout: NodePodLayout) -> PodChanges:
    """The creation of missing pods, and the deletion of failed, surplus and misplaced ones.

    Assumes that `layout` has every pod of the DaemonSet, including those just created and those
    just deleted (as terminating). A failed pod is deleted now, and replaced in a later
    reconciliation, when it is gone.
    """
    return _Changes(layout).run()


class _Changes:
    def __init__(self, layout: NodePodLayout) -> None:
        strategy = layout.seen.daemonset.strategy
        self.layout = layout
        self.factory = PodFactory(layout)
        self.surges = isinstance(strategy, RollingUpdate) and strategy.surges
        self.creates: list[CreatePod] = []
        self.later: list[str] = []
        self.unplaced: dict[str, str] = {}
        self.deletes: list[DeletePod] = []
        self.backoffs: dict[str, FailedPodBackoff] = {}
        self.waits: list[float] = []

    def run(self) -> PodChanges:
        for node_pods in self.layout.nodes:
            if node_pods.settled:
                continue
            match node_pods.placement:
                case Placement.RUN if not node_pods.pods:
                    self.create(node_pods, "the node has no pod")
                case Placement.RUN | Placement.KEEP:
                    if node_pods.pods:
                        self.delete_surplus(node_pods)
                case Placement.EVICT:
                    self.evict(node_pods)
                case None:
                    self.delete_unbound(node_pods)
        wake_at = min(self.waits, default=None)
        return PodChanges(
            tuple(self.creates),
            tuple(self.deletes),
            self.backoffs,
            wake_at,
            self.unplaced,
            tuple(self.later),
        )

    def create(self, node_pods: NodePods, why: str) -> None:
        if reason := self.factory.misfit(node_pods):
            self.unplaced[node_pods.node] = reason
        elif len(self.creates) < pod_changes.BURST:
            self.creates.append(self.factory.create(node_pods, why))
        else:
            self.later.append(node_pods.node)

    def delete_surplus(self, node_pods: NodePods) -> None:
        """Deletes failed, succeeded and surplus pods of a node that may have a pod."""
        running = []
        for pod in node_pods.pods:
            if pod.terminating:
                continue
            if pod.phase is Phase.FAILED:
                self.delete_failed(node_pods, pod)
            elif pod.phase is Phase.SUCCEEDED:
                self.deletes.append(
                    pod_changes.delete(
                        node_pods,
                        pod,
                        DeleteCause.SUCCEEDED,
                        "it has ended, and the node needs an agent",
                    )
                )
            else:
                running.append(pod)
        if self.surges:
            self.delete_replaced(node_pods, running)
        else:
            for pod in running[1:]:
                self.deletes.append(
                    pod_changes.delete(
                        node_pods,
                        pod,
                        DeleteCause.DUPLICATE,
                        f"{running[0].name} runs there already",
                    )
                )

    def delete_replaced(self, node_pods: NodePods, running: list[Pod]) -> None:
        """With surge a node may have a new and an old pod; the old one is deleted when the new one
        is available, or when it is itself not ready.
        """
        if not running:
            if node_pods.wanted:
                self.create(node_pods, "the node has no running pod")
            return
        if len(running) == 1:
            return
        new = next((pod for pod in running if pod.hash == self.layout.hash), None)
        old = next((pod for pod in running if pod.hash != self.layout.hash), None)
        for pod in running:
            if pod is not new and pod is not old:
                self.deletes.append(
                    pod_changes.delete(
                        node_pods,
                        pod,
                        DeleteCause.DUPLICATE,
                        "an older pod of its revision runs there already",
                    )
                )
        if new is None or old is None:
            return
        if not old.ready:
            self.deletes.append(
                pod_changes.delete(
                    node_pods,
                    old,
                    DeleteCause.OUTDATED,
                    "it is not ready, and its replacement is there",
                )
            )
        elif self.layout.available(new):
            self.deletes.append(
                pod_changes.delete(
                    node_pods, old, DeleteCause.OUTDATED, "its replacement is available"
                )
            )

    def delete_failed(self, node_pods: NodePods, pod: Pod) -> None:
        """Deletes a failed pod, unless the node is in back-off."""
        now = self.layout.seen.now
        last = self.backoffs.get(node_pods.node) or self.layout.seen.backoffs.get(node_pods.node)
        # a future time is from before the clock was set back
        if last is not None and last.since <= now < last.until:
            self.waits.append(last.until)
            return
        self.backoffs[node_pods.node] = memory.next_backoff(last, now)
        why = f"it failed ({pod.trouble})"
        self.deletes.append(pod_changes.delete(node_pods, pod, DeleteCause.FAILED, why))

    def evict(self, node_pods: NodePods) -> None:
        for pod in node_pods.staying:
            self.deletes.append(
                pod_changes.delete(
                    node_pods, pod, DeleteCause.UNWANTED, "the node may not run it any more"
                )
            )

    def delete_unbound(self, node_pods: NodePods) -> None:
        """Deletes unbound pods of a deleted node, which would wait indefinitely; the garbage
        collector deletes bound ones.
        """
        for pod in node_pods.staying:
            if not pod.bound:
                self.deletes.append(
                    pod_changes.delete(node_pods, pod, DeleteCause.UNWANTED, "its node is gone")
                )
