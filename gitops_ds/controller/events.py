"""What the deployer tells the cluster's own event log, on its state's ConfigMap: `kubectl events` shows it.

One event a fact, never one an object. Writing them never hinders a pass: an event that can't be written is dropped.
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from gitops_ds import errors
from gitops_ds.kinds import timestamps
from gitops_ds.model import deployment
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import EVENT
from gitops_ds.model.record import Record

WAITING_AT_MOST = 100
COMPONENT = "gitops-ds"


@dataclass(frozen=True, slots=True)
class Told:
    """An event's reason, its message, and whether somebody should look."""

    reason: str
    message: str
    warning: bool = False


def told(record: Record) -> Told | None:
    """The event of a record; None for what the log alone keeps."""
    match record:
        case deployment.NewCommit(commit=commit, subject=subject, author=author, rewritten=True):
            return Told(
                "HistoryRewritten", f"the branch was rewritten; it now is {commit[:12]} {subject!r} by {author}", warning=True
            )
        case deployment.NewCommit(commit=commit, subject=subject, author=author):
            return Told("NewCommit", f"{commit[:12]} {subject!r} by {author}")
        case deployment.CommitRejected(commit=commit, findings=findings):
            first = findings[0]
            place = f"{first.place}: " if first.place else ""
            return Told("CommitRejected", f"{(commit or '')[:12]} is not applied: {place}{first.message}", warning=True)
        case deployment.PassEnded(commit=commit, writes=writes, refusals=refusals):
            return _ended(commit or "", writes, [refusal.message for refusal in refusals if refusal.guard in _PRUNE])
        case deployment.PassFailed(message=message):
            return Told("PassFailed", message, warning=True)
        case _:
            return None


_PRUNE = frozenset(("empty-render", "share-of-nodes"))


def _ended(commit: str, writes: int, pruning: list[str]) -> Told | None:
    if pruning:
        return Told("PruneRefused", "; ".join(pruning), warning=True)
    return Told("Applied", f"{commit[:12]}: {writes} objects written") if writes else None


class Events:
    """Takes records from a loop and writes their events one after the other while `run` runs."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        """The events are about the ConfigMap of that name."""
        self._cluster = cluster
        self._about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name}
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(WAITING_AT_MOST)

    def hear(self, record: Record) -> None:
        """Remembers the record's event; one too many is dropped."""
        if (found := told(record)) is not None:
            with contextlib.suppress(asyncio.QueueFull):
                self._waiting.put_nowait(self._body(found, record.at))

    async def run(self) -> None:
        """Writes events until it is cancelled."""
        while True:
            body = await self._waiting.get()
            with contextlib.suppress(errors.ClusterError):
                await self._cluster.create(EVENT, body)

    def _body(self, found: Told, at: float) -> dict[str, Any]:
        moment = timestamps.text(at)
        name = f"{self._about['name']}.{int(at * 1e6):x}.{found.reason.lower()}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self._about["namespace"], "name": name},
            "involvedObject": self._about,
            "reason": found.reason,
            "message": found.message[:1024],  # the API server takes no more
            "type": "Warning" if found.warning else "Normal",
            "source": {"component": COMPONENT},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
