"""What happened, as the cluster's own event log has it: the service's events, and the DaemonSet
controller's.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gitops_ds.apimachinery import timestamps
from gitops_ds.fleet import agents
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import EVENT, Body, Key, group_of
from gitops_ds.service import event_recorder

_SPEAKERS = frozenset((event_recorder.COMPONENT, event_recorder.CONTROLLER))


@dataclass(frozen=True, slots=True)
class Happening:
    """One event: when it was last seen (seconds since 1970), what it is about, who says it, and how
    often.
    """

    last: float
    key: Key
    reason: str
    message: str
    warning: bool
    count: int
    speaker: str

    @property
    def type(self) -> str:
        """As Kubernetes calls it."""
        return "Warning" if self.warning else "Normal"


async def read(cluster: Cluster, state_namespace: str) -> list[Happening]:
    """Events of DaemonSets, from any source, and those on the service's own objects; newest last.
    Raises ClusterError.
    """
    found = [_happening(body) for body in (await cluster.list(EVENT)).items]
    ours = (
        one
        for one in found
        if one.key.is_daemonset
        or (one.key.namespace == state_namespace and one.speaker in _SPEAKERS)
    )
    return sorted(ours, key=lambda one: (one.last, one.key, one.reason))


def as_json(one: Happening) -> dict[str, Any]:
    """One item of an EventList of ours."""
    about = {
        "group": one.key.group,
        "kind": one.key.kind,
        "namespace": one.key.namespace,
        "name": one.key.name,
    }
    last = agents.when(datetime.fromtimestamp(one.last, UTC))
    fields = {"type": one.type, "reason": one.reason, "message": one.message, "count": one.count}
    return {"lastSeen": last, **fields, "object": about, "source": one.speaker}


def _happening(body: Body) -> Happening:
    about = body.get("involvedObject") or {}
    series, metadata = body.get("series") or {}, body.get("metadata") or {}
    moments = (
        series.get("lastObservedTime"),
        body.get("lastTimestamp"),
        body.get("eventTime"),
        metadata.get("creationTimestamp"),
    )
    last = next(
        (
            seconds
            for moment in moments
            if moment and (seconds := timestamps.seconds(str(moment))) is not None
        ),
        0.0,
    )
    return Happening(
        last=last,
        key=Key(
            group_of(about),
            str(about.get("kind")),
            str(about.get("namespace") or ""),
            str(about.get("name")),
        ),
        reason=str(body.get("reason") or ""),
        message=str(body.get("message") or body.get("note") or ""),
        warning=body.get("type") == "Warning",
        count=int(series.get("count") or body.get("count") or 1),
        speaker=str(
            (body.get("source") or {}).get("component") or body.get("reportingComponent") or ""
        ),
    )
