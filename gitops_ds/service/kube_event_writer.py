"""Writes Kubernetes events about our events, for `kubectl events` and `kubectl describe`.

Writes never delay a reconciliation: an event that cannot be written is dropped.
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from gitops_ds.core import errors, plain_text
from gitops_ds.core.cluster import Cluster, PatchType
from gitops_ds.core.events.base import Emit, Event, EventOrigin
from gitops_ds.core.events.bus import EventBus
from gitops_ds.core.objects import EVENT
from gitops_ds.core.redaction import texts
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.client.supervisor import Supervisor
from gitops_ds.notify.kube_events import (
    UPSTREAM,
    EventCorrelator,
    EventRecorder,
    EventSeries,
    InvolvedObject,
)

QUEUE_SIZE = 1000
OF_CONTROLLER = 100  # events that wait before one of the controller is dropped
MESSAGE_SIZE = 1024  # characters, the maximum of the API server
COMPONENT = "gitops-ds"
CONTROLLER = "daemonset-controller"  # the name of upstream's, on which alerts and dashboards rely


@contextlib.asynccontextmanager
async def recorded(cluster: Cluster, emit: Emit, *, of_pods: bool) -> AsyncIterator[Emit]:
    """Emits events to `emit`, and writes their Kubernetes events in the context; those of single
    pods only with `of_pods`.
    """
    writer = KubeEventWriter(cluster, of_pods=of_pods)

    def emit_and_write(event: Event) -> None:
        emit(event)
        writer.handle(event)

    task = Supervisor(emit, time.time).start("events", writer.run)
    try:
        yield emit_and_write
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def of_deployer(
    cluster: Cluster, state: InvolvedObject, events: EventBus, origin: EventOrigin
) -> AsyncIterator[Emit]:
    """The `emit` of a deployer, whose Kubernetes events are written in the context."""
    writer = KubeEventWriter(cluster, state)
    # without the owner: an error of the writer is nothing to write
    task = Supervisor(events.of(replace(origin, owner="")), time.time).start("events", writer.run)
    try:
        with events.subscribed(origin.owner, writer.handle):
            yield events.of(origin)
    finally:
        task.cancel()


class KubeEventWriter:
    """Writes the Kubernetes events of our events in order while `run` runs."""

    def __init__(
        self, cluster: Cluster, state: InvolvedObject | None = None, *, of_pods: bool = True
    ) -> None:
        """The events of a deployer are about `state`; without it they are not written."""
        self._cluster = cluster
        self._recorder, self._correlator = EventRecorder(state, of_pods), EventCorrelator()
        self._queue: asyncio.Queue[EventSeries] = asyncio.Queue(QUEUE_SIZE)

    def handle(self, event: Event) -> None:
        """Queues the Kubernetes events of an event; drops them when the queue is full, those of the
        controller, which are many, before others.
        """
        for kube_event in self._recorder.kube_events(event):
            series = self._correlator.take(kube_event, event.at)
            is_late = kube_event.reason in UPSTREAM and self._queue.qsize() >= OF_CONTROLLER
            if series is not None and not is_late:
                with contextlib.suppress(asyncio.QueueFull):
                    self._queue.put_nowait(series)

    async def run(self) -> None:
        """Writes events until it is cancelled."""
        while True:
            series = await self._queue.get()
            with contextlib.suppress(errors.GitopsError):  # also a name that is not valid
                await self._write(series)

    async def _write(self, series: EventSeries) -> None:
        body = body_of(series)
        metadata = body["metadata"]
        if series.count > 1:
            with contextlib.suppress(errors.NotFound):  # an event lives for an hour
                patch = {name: body[name] for name in ("message", "count", "lastTimestamp")}
                await self._cluster.patch(
                    EVENT, metadata["namespace"], metadata["name"], patch, type=PatchType.MERGE
                )
                return
        await self._cluster.create(EVENT, body)


def body_of(series: EventSeries) -> dict[str, Any]:
    """The body of a Kubernetes event."""
    event, about = series.event, series.event.about
    involved = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
    }
    # It contains messages of commits and of the API server.
    message = "\n".join(
        plain_text.line(line, MESSAGE_SIZE) for line in texts.words(event.message).split("\n")
    )
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        # that of an event about an object without a namespace (client-go's tools/record/event.go)
        "metadata": {
            "namespace": about.namespace or "default",
            "name": f"{about.name}.{series.id}",
        },
        "involvedObject": {**involved, **({"uid": about.uid} if about.uid else {})},
        "reason": event.reason,
        "message": message[:MESSAGE_SIZE],
        "type": "Warning" if event.warning else "Normal",
        "source": {"component": CONTROLLER if event.reason in UPSTREAM else COMPONENT},
        "firstTimestamp": timestamps.text(series.first),
        "lastTimestamp": timestamps.text(series.last),
        "count": series.count,
    }
