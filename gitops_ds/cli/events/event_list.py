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
from gitops_ds.service import kube_event_writer
from gitops_ds.status import agents

_SOURCES = frozenset((kube_event_writer.COMPONENT, kube_event_writer.CONTROLLER))


class ListedEvent(msgspec.Struct, frozen=True):
    """One event: its last time (seconds since 1970), object, source and count. `name` is the name
    of the Event.
    """

    last: float
    key: Key
    reason: str
    message: str
    warning: bool
    count: int
    source: str
    name: str = ""

    @property
    def type(self) -> str:
        """The type in Kubernetes."""
        return "Warning" if self.warning else "Normal"


async def read(cluster: ClusterReader, state_namespace: str) -> list[ListedEvent]:
    """Events of DaemonSets, from any source, and those on the service's own objects; newest last.
    Raises ClusterError.
    """
    listed = [_event_of(body) for body in (await cluster.list(EVENT)).items]
    ours = (event for event in listed if _is_shown(event, state_namespace))
    return sorted(ours, key=lambda event: (event.last, event.key, event.reason))


def _is_shown(event: ListedEvent, state_namespace: str) -> bool:
    ours = event.key.namespace == state_namespace and event.source in _SOURCES
    return event.key.is_daemonset or ours


async def follow(
    cluster: ClusterReader,
    state_namespace: str,
    show: Callable[[list[ListedEvent]], None],
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
        listed = [shown for shown in map(_event_of, bodies) if _is_shown(shown, state_namespace)]
        new = [event for event in listed if counts.get((event.key, event.name)) != event.count]
        counts.update({(event.key, event.name): event.count for event in new})
        show(sorted(new, key=lambda event: (event.last, event.key, event.reason)))

    watch = asyncio.create_task(
        informer.run(cluster, EVENT, Selection(), receive, random=random.random)
    )
    try:
        await failure
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


def field_of(event: ListedEvent, name: str) -> str:
    """The value of a field that a field selector names."""
    match name:
        case "type":
            return event.type
        case "reason":
            return event.reason
        case "source" | "reportingComponent":
            return event.source
        case "metadata.name":
            return event.name
        case "metadata.namespace" | "involvedObject.namespace":
            return event.key.namespace
        case "involvedObject.kind":
            return event.key.kind
        case "involvedObject.name":
            return event.key.name
        case _:
            raise ValueError(name)


def as_json(event: ListedEvent) -> dict[str, Any]:
    """One item of our EventList."""
    about = {
        "group": event.key.group,
        "kind": event.key.kind,
        "namespace": event.key.namespace,
        "name": event.key.name,
    }
    last = agents.when(datetime.fromtimestamp(event.last, UTC))
    fields = {
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": event.count,
    }
    return {
        "name": event.name,
        "lastSeen": last,
        **fields,
        "object": about,
        "source": event.source,
    }


def _event_of(body: Body) -> ListedEvent:
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
    return ListedEvent(
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
        source=str(
            (body.get("source") or {}).get("component") or body.get("reportingComponent") or ""
        ),
        name=str(metadata.get("name") or ""),
    )
