"""The reason why pods are refused, from the events FailedCreate and FailedPlacement of their
DaemonSet: no status contains it.

The built-in controller reports a quota, a policy or a webhook only there. It retries after at
most 1,000 s, so an older event does not count.
https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gitops_ds import errors
from gitops_ds.apimachinery import pod_cause
from gitops_ds.model.cluster import Cluster, Selection
from gitops_ds.model.health import Health
from gitops_ds.model.objects import DAEMONSET, EVENT, Body

STILL = 1_200.0  # seconds for which an event counts
REASONS = ("FailedCreate", "FailedPlacement")
_WAITS = frozenset({"NoPod", "Refused"})
_POD = re.compile(r'pods "[^"]*" is ')  # the name of the pod differs each time


def waits(health: Health) -> bool:
    """Whether a node waits for a pod, so that the events must be read."""
    return any(node.reason in _WAITS for node in health.nodes)


async def read(cluster: Cluster, now: float) -> Mapping[str, str]:
    """The last message about each DaemonSet, by its UID; empty without permission to list events.
    Raises ClusterError.
    """
    bodies: list[Body] = []
    for reason in REASONS:
        try:
            which = Selection(fields=f"reason={reason},involvedObject.kind=DaemonSet")
            bodies += (await cluster.list(EVENT, which)).items
        except errors.Forbidden:
            return {}
    return latest(bodies, now - STILL)


def latest(events: Iterable[Body], since: float) -> Mapping[str, str]:
    """The last message about each DaemonSet, by its UID, after `since` (seconds since 1970)."""
    by_pod: dict[str, tuple[float, str]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        at = pod_cause.last_seen(event)
        uid = str(about.get("uid") or "")
        is_ours = event.get("reason") in REASONS and about.get("kind") == DAEMONSET.kind
        if is_ours and at > max(since, by_pod.get(uid, (0.0,))[0]):
            by_pod[uid] = (
                at,
                _POD.sub(
                    "pods are ", str(event.get("message") or "").removeprefix("Error creating: ")
                ),
            )
    return {uid: words for uid, (_, words) in by_pod.items()}
