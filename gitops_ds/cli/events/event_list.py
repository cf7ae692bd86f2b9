"""The Kubernetes events of the service and of the DaemonSet controller.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gitops_ds.core.cluster import ClusterReader, EventType, Listing, Selection, WatchEvent
from gitops_ds.core.errors import Expired
from gitops_ds.core.objects import EVENT, Body, Key, group_of
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.client import informer
from gitops_ds.service import event_recorder
from gitops_ds.status import agents

_SPEAKERS = frozenset((event_recorder.COMPONENT, event_recorder.CONTROLLER))


class Happening(msgspec.Struct, frozen=True):
    """One event: its last time (seconds since 1970), object, source and count. `name` is the name
    of the Event.
    """

    last: float
    key: Key
    reason: str
    message: str
    warning: bool
    count: int
    speaker: str
    name: str = ""

    @property
    def type(self) -> str:
        """The type in Kubernetes."""
        return "Warning" if self.warning else "Normal"


async def read(cluster: ClusterReader, state_namespace: str) -> list[Happening]:
    """Events of DaemonSets, from any source, and those on the service's own objects; newest last.
    Raises ClusterError.
    """
    happenings = [_happening(body) for body in (await cluster.list(EVENT)).items]
    ours = (one for one in happenings if _is_shown(one, state_namespace))
    return sorted(ours, key=lambda one: (one.last, one.key, one.reason))


def _is_shown(one: Happening, state_namespace: str) -> bool:
    ours = one.key.namespace == state_namespace and one.speaker in _SPEAKERS
    return one.key.is_daemonset or ours


async def follow(
    cluster: ClusterReader,
    state_namespace: str,
    show: Callable[[list[Happening]], None],
    say: Callable[[str], None],
) -> None:
    """Shows the events as `read`, then each new or repeated one, until cancelled. `say` receives
    errors that are retried. Raises ClusterError for a permanent error.
    """
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    counts: dict[tuple[Key, str], int] = {}

    def receive(event: informer.InformerEvent) -> None:
        match event:
            case Listing(items=items):
                bodies = list(items)
            case WatchEvent(type=EventType.ADDED | EventType.MODIFIED, object=body):
                bodies = [body]
            case informer.Failing(error=error) if not error.retryable and not isinstance(
                error, Expired
            ):
                if not failure.done():
                    failure.set_exception(error)
                return
            case informer.Failing(error=error):
                say(f"{error}; retrying")
                return
            case _:
                return
        happenings = [one for one in map(_happening, bodies) if _is_shown(one, state_namespace)]
        new = [one for one in happenings if counts.get((one.key, one.name)) != one.count]
        counts.update({(one.key, one.name): one.count for one in new})
        show(sorted(new, key=lambda one: (one.last, one.key, one.reason)))

    watch = asyncio.create_task(
        informer.run(cluster, EVENT, Selection(), receive, random=random.random)
    )
    try:
        await failure
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


def field_of(one: Happening, name: str) -> str:
    """The value of a field that a field selector names."""
    match name:
        case "type":
            return one.type
        case "reason":
            return one.reason
        case "source" | "reportingComponent":
            return one.speaker
        case "metadata.name":
            return one.name
        case "metadata.namespace" | "involvedObject.namespace":
            return one.key.namespace
        case "involvedObject.kind":
            return one.key.kind
        case "involvedObject.name":
            return one.key.name
        case _:
            raise ValueError(name)


def as_json(one: Happening) -> dict[str, Any]:
    """One item of our EventList."""
    about = {
        "group": one.key.group,
        "kind": one.key.kind,
        "namespace": one.key.namespace,
        "name": one.key.name,
    }
    last = agents.when(datetime.fromtimestamp(one.last, UTC))
    fields = {"type": one.type, "reason": one.reason, "message": one.message, "count": one.count}
    return {"name": one.name, "lastSeen": last, **fields, "object": about, "source": one.speaker}


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
        name=str(metadata.get("name") or ""),
    )
