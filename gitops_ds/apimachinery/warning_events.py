"""The newest warning among the Kubernetes events of a pod.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

from collections.abc import Iterable

from gitops_ds.apimachinery import timestamps
from gitops_ds.apimachinery.pod_cause import HARMLESS, REPEATING
from gitops_ds.model import plain_text
from gitops_ds.model.daemonset import PodCause
from gitops_ds.model.objects import Body

READINESS = "Readiness probe"  # pkg/kubelet/prober/prober.go


def newest(events: Iterable[Body]) -> PodCause | None:
    """The newest warning that may explain a failure. Those that repeat the status of the pod, and
    failures of its readiness probe, count only without others: a container that its liveness probe
    stopped is not ready afterwards.
    """
    warnings = [
        one
        for one in events
        if one.get("type") == "Warning" and one.get("message") and one.get("reason") not in HARMLESS
    ]
    last = max(
        warnings,
        key=lambda one: (
            one.get("reason") not in REPEATING,
            not str(one["message"]).startswith(READINESS),
            last_seen(one),
        ),
        default=None,
    )
    if last is None:
        return None
    message = plain_text.line(" ".join(str(last["message"]).split()))
    return PodCause(str(last.get("reason") or "Warning"), message)


def last_seen(event: Body) -> float:
    """When an event last occurred, in seconds since 1970; 0 if unknown."""
    moment = (
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or ""
    )
    return timestamps.seconds(str(moment)) or 0.0
