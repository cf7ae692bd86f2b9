"""The followed repositories of a cluster, from the statuses that services save; without requests to
services.
"""

from __future__ import annotations

from typing import Any

from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store, state_store
from gitops_ds.kube.apimachinery import timestamps

NONE = "no running service follows this repository"


async def look(cluster: ClusterReader, namespace: str, now: float) -> tuple[SourceStatus, ...]:
    """Every repository with a status or a state, sorted by id; Unknown without a running service.
    Raises ClusterError.
    """
    statuses = dict(await source_status_store.load_all(cluster, namespace, now))
    for id, state in (await state_store.load_all(cluster, namespace)).items():
        if id not in statuses:
            statuses[id] = SourceStatus(
                id,
                state.repository,
                newest=state.last_attempted,
                applied=state.last_good,
                active=False,
            )
    return tuple(_current(statuses[id]) for id in sorted(statuses))


def _current(status: SourceStatus) -> SourceStatus:
    if status.active:
        message = "; ".join(filter(None, (status.message, status.warning)))
        return replace(status, message=message)
    last = (
        f"; its last condition was {status.condition}: {status.message}" if status.message else ""
    )
    return replace(status, condition=Condition.UNKNOWN, message=NONE + last)


def as_json(status: SourceStatus) -> dict[str, Any]:
    """One item of a SourceStatusList (docs/reference/json.md)."""
    return {
        "name": status.id,
        "repository": status.repository,
        "branch": status.branch,
        "newestCommit": status.newest or "",
        "appliedCommit": status.applied or "",
        "condition": status.condition.value,
        "message": status.message,
        "since": timestamps.text(status.since) if status.since else "",
        "looked": timestamps.text(status.looked) if status.looked else "",
        "held": list(status.held),
        "suspended": status.suspended,
        "followed": status.active,
        "otherService": timestamps.text(status.beside) if status.beside else "",
        "otherNamespace": status.elsewhere,
    }
