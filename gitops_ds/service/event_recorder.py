"""Writes to the cluster's own event log what the records tell: `kubectl events` and `kubectl
describe` show it.

Writing never hinders a pass or a turn: an event that can't be written is dropped.
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from gitops_ds import errors
from gitops_ds.apimachinery import timestamps
from gitops_ds.client.supervisor import Supervisor
from gitops_ds.model import plain_text
from gitops_ds.model.cluster import Cluster, PatchType
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.objects import EVENT
from gitops_ds.redaction import texts
from gitops_ds.telemetry.kube_events import (
    UPSTREAM,
    EventCorrelator,
    EventRecorder,
    EventSeries,
    InvolvedObject,
)

WAITING_AT_MOST = 100
COMPONENT = "gitops-ds"
CONTROLLER = "daemonset-controller"  # as upstream's calls itself: alerts and dashboards look for it


@contextlib.asynccontextmanager
async def beside(cluster: Cluster, state: InvolvedObject | None, tell: Emit) -> AsyncIterator[Emit]:
    """What is told here is told to `tell`, and goes to the cluster's own event log."""
    told = Events(cluster, state)

    def emit(record: Event) -> None:
        tell(record)
        told.handle(record)

    writing = Supervisor(tell, time.time).start("events", told.run)
    try:
        yield emit
    finally:
        writing.cancel()


class Events:
    """Takes records from the loops and writes their events one after the other while `run` runs."""

    def __init__(self, cluster: Cluster, state: InvolvedObject | None = None) -> None:
        """The deployer's events stand on `state`; without it they are not told."""
        self._cluster = cluster
        self._reporter, self._condenser = EventRecorder(state), EventCorrelator()
        self._waiting: asyncio.Queue[EventSeries] = asyncio.Queue(WAITING_AT_MOST)

    def handle(self, record: Event) -> None:
        """Remembers the record's events; one too many is dropped."""
        for told in self._reporter.told(record):
            entry = self._condenser.take(told, record.at)
            if entry is not None:
                with contextlib.suppress(asyncio.QueueFull):
                    self._waiting.put_nowait(entry)

    async def run(self) -> None:
        """Writes events until it is cancelled."""
        while True:
            entry = await self._waiting.get()
            with contextlib.suppress(errors.ClusterError):
                await self._write(entry)

    async def _write(self, entry: EventSeries) -> None:
        body = self._body(entry)
        metadata = body["metadata"]
        if entry.count > 1:
            with contextlib.suppress(errors.NotFound):  # an event lives for an hour
                again = {name: body[name] for name in ("message", "count", "lastTimestamp")}
                await self._cluster.patch(
                    EVENT, metadata["namespace"], metadata["name"], again, type=PatchType.MERGE
                )
                return
        await self._cluster.create(EVENT, body)

    def _body(self, entry: EventSeries) -> dict[str, Any]:
        told, about = entry.event, entry.event.about
        named = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
        }
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"namespace": about.namespace, "name": f"{about.name}.{entry.id}"},
            "involvedObject": {**named, **({"uid": about.uid} if about.uid else {})},
            "reason": told.reason,
            # The API server takes no more. Words of commits and of refusals are in it.
            "message": "\n".join(
                plain_text.line(line, 1024) for line in texts.words(told.message).split("\n")
            )[:1024],
            "type": "Warning" if told.warning else "Normal",
            "source": {"component": CONTROLLER if told.reason in UPSTREAM else COMPONENT},
            "firstTimestamp": timestamps.text(entry.first),
            "lastTimestamp": timestamps.text(entry.last),
            "count": entry.count,
        }
