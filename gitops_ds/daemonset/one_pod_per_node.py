"""One pod on each node that needs one, no second pod, and none on other nodes.

Upstream: `manage` and `podsShouldBeOnNode` of daemon_controller.go. Each node is examined alone,
without a budget; a rollout continues only when this module changes nothing.
"""

from __future__ import annotations

from gitops_ds.apimachinery.node_eligibility import Placement
from gitops_ds.daemonset import failed_pod_backoff, pod_changes
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.pod_changes import PodChanges
from gitops_ds.daemonset.pod_factory import PodFactory
from gitops_ds.model.daemonset import Phase, Pod, RollingUpdate
from gitops_ds.model.decision import CreatePod, DeleteCause, DeletePod, FailedPodBackoff


def changes(fleet: NodePodLayout) -> PodChanges:
    """The creation of missing pods, and the deletion of failed, surplus and misplaced ones.

    Assumes that `fleet` holds every pod of the DaemonSet, including those just created and those
    just deleted (as terminating). A failed pod is deleted now, and replaced in a later
    reconciliation, when it is gone.
    """
    return _Changes(fleet).run()


class _Changes:
    def __init__(self, fleet: NodePodLayout) -> None:
        strategy = fleet.seen.daemonset.strategy
        self.fleet = fleet
        self.mould = PodFactory(fleet)
        self.surges = isinstance(strategy, RollingUpdate) and strategy.max_surge.of(1) > 0
        self.creates: list[CreatePod] = []
        self.later: list[str] = []
        self.unplaced: dict[str, str] = {}
        self.deletes: list[DeletePod] = []
        self.backoffs: dict[str, FailedPodBackoff] = {}
        self.waits: list[float] = []

    def run(self) -> PodChanges:
        for spot in self.fleet.spots:
            match spot.placement:
                case Placement.RUN if not spot.pods:
                    self.create(spot, "the node has no pod")
                case Placement.RUN | Placement.KEEP:
                    if spot.pods:
                        self.tidy(spot)
                case Placement.EVICT:
                    self.clear(spot)
                case None:
                    self.forget(spot)
        wake_at = min(self.waits, default=None)
        return PodChanges(
            tuple(self.creates),
            tuple(self.deletes),
            self.backoffs,
            wake_at,
            self.unplaced,
            tuple(self.later),
        )

    def create(self, spot: NodePods, why: str) -> None:
        if reason := self.mould.misfit(spot):
            self.unplaced[spot.node] = reason
        elif len(self.creates) < pod_changes.BURST:
            self.creates.append(self.mould.create(spot, why))
        else:
            self.later.append(spot.node)

    def tidy(self, spot: NodePods) -> None:
        """Ends failed, succeeded and surplus pods of a node that may have one."""
        running = []
        for pod in spot.pods:
            if pod.terminating:
                continue
            if pod.phase is Phase.FAILED:
                self.fail(spot, pod)
            elif pod.phase is Phase.SUCCEEDED:
                self.deletes.append(
                    pod_changes.delete(
                        spot,
                        pod,
                        DeleteCause.SUCCEEDED,
                        "it has ended, and the node needs an agent",
                    )
                )
            else:
                running.append(pod)
        if self.surges:
            self.hand_over(spot, running)
        else:
            for pod in running[1:]:
                self.deletes.append(
                    pod_changes.delete(
                        spot, pod, DeleteCause.DUPLICATE, f"{running[0].name} runs there already"
                    )
                )

    def hand_over(self, spot: NodePods, running: list[Pod]) -> None:
        """With surge a node may have a new and an old pod; the old one goes once the new one is
        available, or itself not ready.
        """
        if not running:
            if spot.wanted:
                self.create(spot, "the node has no running pod")
            return
        if len(running) == 1:
            return
        new = next((pod for pod in running if pod.hash == self.fleet.hash), None)
        old = next((pod for pod in running if pod.hash != self.fleet.hash), None)
        for pod in running:
            if pod is not new and pod is not old:
                self.deletes.append(
                    pod_changes.delete(
                        spot,
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
                    spot, old, DeleteCause.OUTDATED, "it is not ready, and its replacement is there"
                )
            )
        elif self.fleet.available(new):
            self.deletes.append(
                pod_changes.delete(spot, old, DeleteCause.OUTDATED, "its replacement is available")
            )

    def fail(self, spot: NodePods, pod: Pod) -> None:
        """Ends a failed pod, unless one failed there a short time ago."""
        now = self.fleet.seen.now
        last = self.backoffs.get(spot.node) or self.fleet.seen.backoffs.get(spot.node)
        # one from the future is of a clock that was put back
        if last is not None and last.since <= now < last.until:
            self.waits.append(last.until)
            return
        self.backoffs[spot.node] = failed_pod_backoff.following(last, now)
        why = f"it failed ({pod.trouble or 'no reason given'})"
        self.deletes.append(pod_changes.delete(spot, pod, DeleteCause.FAILED, why))

    def clear(self, spot: NodePods) -> None:
        for pod in spot.staying:
            self.deletes.append(
                pod_changes.delete(
                    spot, pod, DeleteCause.UNWANTED, "the node may not run it any more"
                )
            )

    def forget(self, spot: NodePods) -> None:
        """A node that is gone: pods that are not bound to it yet would wait indefinitely; the
        garbage collector deletes bound ones.
        """
        for pod in spot.staying:
            if not pod.bound:
                self.deletes.append(
                    pod_changes.delete(spot, pod, DeleteCause.UNWANTED, "its node is gone")
                )
