"""The counters of a DaemonSet's status, and whether they need writing."""

from __future__ import annotations

from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.model.daemonset import Counts
from gitops_ds.model.decision import StatusUpdate


def count(layout: NodePodLayout) -> Counts:
    """The current counters. Of several pods on a node only the one to keep counts, also while it is
    being deleted.
    """
    desired = current = misscheduled = ready = updated = available = 0
    for node_pods in layout.nodes:
        if node_pods.placement is None:
            continue
        if not node_pods.wanted:
            misscheduled += bool(node_pods.pods)
            continue
        desired += 1
        if node_pods.pods:
            pod = node_pods.pods[0]
            current += 1
            ready += pod.ready
            updated += layout.updated(pod)
            available += layout.available(pod)
    return Counts(desired, current, misscheduled, ready, updated, available)


def write(layout: NodePodLayout) -> StatusUpdate | None:
    """The status to write; None if it is up to date."""
    daemonset, counts = layout.seen.daemonset, count(layout)
    counter = (daemonset.raw.get("status") or {}).get("numberUnavailable") or 0
    if (counts, counts.unavailable) == (
        daemonset.counts,
        counter,
    ) and daemonset.observed_generation >= daemonset.generation:
        return None
    return StatusUpdate(counts, daemonset.generation)


def next_available(layout: NodePodLayout) -> float | None:
    """When the next ready pod becomes available after `minReadySeconds` (seconds since 1970); None
    if no pod waits for that.
    """
    seconds = layout.seen.daemonset.min_ready_seconds
    if not seconds:
        return None
    times = (pod.available_at(seconds) for node_pods in layout.nodes for pod in node_pods.pods)
    return min(
        (time for time in times if time is not None and time > layout.seen.now), default=None
    )
