"""The counters of a DaemonSet's status, and whether they need writing."""

from __future__ import annotations

from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.model.daemonset import Counts
from gitops_ds.model.decision import StatusUpdate


def count(fleet: NodePodLayout) -> Counts:
    """The counters as of now. Of several pods on a node the one that would be kept counts, also
    while it is being deleted.
    """
    desired = current = misscheduled = ready = updated = available = 0
    for spot in fleet.spots:
        if spot.placement is None:
            continue
        if not spot.wanted:
            misscheduled += bool(spot.pods)
            continue
        desired += 1
        if spot.pods:
            pod = spot.pods[0]
            current += 1
            ready += pod.ready
            updated += fleet.updated(pod)
            available += fleet.available(pod)
    return Counts(desired, current, misscheduled, ready, updated, available)


def write(fleet: NodePodLayout) -> StatusUpdate | None:
    """What to write; None when the status says it already."""
    daemonset, counts = fleet.seen.daemonset, count(fleet)
    known = (daemonset.raw.get("status") or {}).get("numberUnavailable") or 0
    if (counts, counts.unavailable) == (
        daemonset.counts,
        known,
    ) and daemonset.observed_generation >= daemonset.generation:
        return None
    return StatusUpdate(counts, daemonset.generation)


def next_available(fleet: NodePodLayout) -> float | None:
    """When the next ready pod will have been so for `minReadySeconds` (seconds since 1970); None if
    none is waiting for that.
    """
    wanted = fleet.seen.daemonset.min_ready_seconds
    if not wanted:
        return None
    times = (pod.available_at(wanted) for spot in fleet.spots for pod in spot.pods)
    return min((time for time in times if time is not None and time > fleet.seen.now), default=None)
