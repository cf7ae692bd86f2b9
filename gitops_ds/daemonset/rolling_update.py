"""The rolling update: the outdated pods to replace now, within the budget of the update strategy.

It considers no failures of single nodes: missing, failed and duplicate pods are handled before
(`one_pod_per_node`). The node of this process comes last: if its agent were the network, and the
new one bad, the rollout could still be stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.apimachinery import int_or_percent
from gitops_ds.daemonset import pod_changes
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.pod_changes import PodChanges
from gitops_ds.daemonset.pod_factory import PodFactory
from gitops_ds.model.daemonset import OnDelete, Pod, RollingUpdate
from gitops_ds.model.decision import CreatePod, DeleteCause, DeletePod

_UNAVAILABLE = "it runs an earlier template and is not available"
_OUTDATED = "it runs an earlier template"


def changes(fleet: NodePodLayout) -> PodChanges:
    """The next moves of the rollout; none when it is done, must wait, or is suspended by the
    annotation.

    In a suspended DaemonSet, `one_pod_per_node` still creates missing pods, of the wanted template.
    """
    if fleet.seen.daemonset.suspended:
        return PodChanges()
    match fleet.seen.daemonset.strategy:
        case OnDelete():
            return PodChanges()
        case RollingUpdate() as strategy:
            max_unavailable, max_surge = int_or_percent.limits(strategy, fleet.desired)
            return _surge(fleet, max_surge) if max_surge else _replace(fleet, max_unavailable)


def _in_turn(fleet: NodePodLayout) -> Sequence[NodePods]:
    own = fleet.seen.own_node
    return sorted(fleet.spots, key=lambda spot: spot.node == own) if own else fleet.spots


def _sort_out(fleet: NodePodLayout, spot: NodePods) -> tuple[Pod | None, Pod | None, bool]:
    """The new pod, the old one, and whether there are more of either."""
    new = old = None
    for pod in spot.staying:
        if fleet.updated(pod):
            if new is not None:
                return None, None, True
            new = pod
        else:
            if old is not None:
                return None, None, True
            old = pod
    return new, old, False


def _replace(fleet: NodePodLayout, max_unavailable: int) -> PodChanges:
    """Deletes old pods; placement creates the new ones.

    Assumes: every node that needs a pod has one or waits for the end of one. Invariant: of the
    available pods, at most `max_unavailable` minus the nodes without an available pod are deleted.
    An old pod that is not ready is no loss and is always deleted, but its node counts, or too many
    others would be deleted too. Pods that are ready, but not yet for `minReadySeconds`, are deleted
    as long as `max_unavailable` allows more nodes without a ready pod; upstream deletes them all,
    and with a clock that was put back every pod may look like that.
    """
    unavailable = unready = 0
    broken: list[DeletePod] = []
    young: list[tuple[NodePods, Pod]] = []
    candidates: list[tuple[NodePods, Pod]] = []
    for spot in _in_turn(fleet):
        if not spot.wanted and not spot.pods:
            continue
        new, old, excess = _sort_out(fleet, spot)
        if excess or (new is None) == (old is None):
            unavailable += 1
            unready += 1
        elif new is not None:
            unavailable += not fleet.available(new)
            unready += not new.ready
        elif old is not None and fleet.available(old):
            candidates.append((spot, old))
        elif old is not None:
            unavailable += 1
            unready += not old.ready
            if old.ready:
                young.append((spot, old))
            else:
                broken.append(pod_changes.delete(spot, old, DeleteCause.OUTDATED, _UNAVAILABLE))
    room = max(0, max_unavailable - unavailable)
    chosen = broken + [
        pod_changes.delete(spot, old, DeleteCause.OUTDATED, _OUTDATED)
        for spot, old in candidates[:room]
    ]
    room = max(0, max_unavailable - unready)
    chosen += [
        pod_changes.delete(spot, old, DeleteCause.OUTDATED, _UNAVAILABLE)
        for spot, old in young[:room]
    ]
    return PodChanges(deletes=tuple(sorted(chosen, key=lambda action: (action.node, action.key))))


def _surge(fleet: NodePodLayout, max_surge: int) -> PodChanges:
    """Creates new pods beside the old ones; an old pod is deleted when the new one is available.

    Invariant: at most `max_surge` nodes have, through this function, a new pod that is not
    available beside an available old one. Where the old pod is not available, its replacement costs
    nothing and is not counted. Old pods on nodes that no longer need one (but may keep it) are
    deleted while the available pods outnumber the wanted ones, so that the fleet remains available
    when the DaemonSet moves to other nodes.
    """
    surge = available = 0
    free: list[CreatePod] = []
    candidates: list[NodePods] = []
    deletes: list[DeletePod] = []
    elsewhere: list[DeletePod] = []
    unplaced: dict[str, str] = {}
    mould = PodFactory(fleet)
    for spot in _in_turn(fleet):
        new, old, excess = _sort_out(fleet, spot)
        if excess:
            surge += 1
            continue
        shown = old or new
        available += shown is not None and fleet.available(shown)
        if old is None or spot.placement is None:
            continue
        if new is not None:
            if fleet.available(new):
                deletes.append(
                    pod_changes.delete(
                        spot, old, DeleteCause.OUTDATED, "its replacement is available"
                    )
                )
            else:
                surge += 1
        elif spot.wanted and (reason := mould.misfit(spot)):
            unplaced[spot.node] = reason
        elif not fleet.available(old):
            if spot.wanted:
                free.append(mould.create(spot, "the earlier pod there is not available"))
            else:
                deletes.append(pod_changes.delete(spot, old, DeleteCause.OUTDATED, _UNAVAILABLE))
        elif spot.wanted:
            candidates.append(spot)
        else:
            elsewhere.append(
                pod_changes.delete(
                    spot, old, DeleteCause.OUTDATED, "enough pods are available on wanted nodes"
                )
            )
    spare = max(0, min(available - fleet.desired, len(elsewhere)))
    creates = free + [
        mould.create(spot, "its pod runs an earlier template")
        for spot in candidates[: max(0, max_surge - surge)]
    ]
    return PodChanges(
        tuple(sorted(creates, key=lambda action: action.node)),
        tuple(sorted(deletes + elsewhere[:spare], key=lambda action: (action.node, action.key))),
        unplaced=unplaced,
    )
