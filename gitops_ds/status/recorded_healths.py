"""The health of agents at rest as their service recorded it. So a table of agents needs no pods of
them: a list of pods grows with nodes and agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.daemonset import Counts
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.objects import CONFIG_MAP, Body, Key
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.rollouts.state import daemonset_statements
from gitops_ds.status import agents, status_writer


async def read(
    cluster: ClusterReader,
    state_namespace: str,
    sources: Mapping[str, SourceStatus],
    seen: Sequence[Observation],
) -> Mapping[Key, Health]:
    """The healths of those of these DaemonSets that are at rest, by the record of a service that
    runs; `sources` are by the ID of the owner. Empty without permission to list ConfigMaps. Raises
    ClusterError.

    A record counts for the DaemonSet, the generation and the counters that it has, while no staged
    rollout is in progress. Its service wrote it after the last change, at most some seconds later.
    """
    running = {id for id, source in sources.items() if source.active}
    if not running:
        return {}
    try:
        listing = await cluster.list(CONFIG_MAP, Selection(state_namespace, status_writer.OF))
    except errors.Forbidden:
        return {}
    bodies = {str(body["metadata"]["name"]): body for body in listing.items}
    return {
        one.daemonset.key: health
        for one in seen
        if agents.owner(one) in running
        if (body := bodies.get(status_writer.name_of(one.daemonset.key))) is not None
        if (record := _record(body, agents.owner(one))) is not None
        if (health := _health(one, record)) is not None
    }


class _ReadyCondition(msgspec.Struct, frozen=True):
    status: str
    message: str


class _RecordedStatus(msgspec.Struct, frozen=True, rename={"daemonset": "daemonSet"}):
    """The fields of a record that are read here."""

    daemonset: Mapping[str, Any]
    commit: str
    health: HealthState
    counts: Mapping[str, int] | None
    conditions: tuple[_ReadyCondition, ...]


def _record(body: Body, owner: str) -> _RecordedStatus | None:
    """The record in a ConfigMap, None if it is malformed, or of another owner."""
    if (body["metadata"].get("labels") or {}).get(status_writer.OF) != owner:
        return None
    try:
        return msgspec.json.decode(body["data"]["status.json"], type=_RecordedStatus)
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None


def _health(seen: Observation, record: _RecordedStatus) -> Health | None:
    """The recorded health, None if it is not that of the DaemonSet as it is, at rest."""
    daemonset, counts = seen.daemonset, seen.daemonset.counts or Counts()
    annotations = daemonset.annotations
    if daemonset.deleting or daemonset.suspended or daemonset_statements.has_target(annotations):
        return None
    is_current = record.daemonset == status_writer.described(daemonset)
    is_applied = record.commit == annotations.get(names.COMMIT, "")
    if not (is_current and is_applied and record.counts == agents.counts_json(counts)):
        return None
    nodes, is_healthy = counts.desired, record.health is HealthState.HEALTHY
    if counts == Counts(nodes, nodes, 0, nodes, nodes, nodes) and not is_healthy:
        return None  # it gets healthy with time, which a killed service does not record
    if not record.conditions:
        return None
    ready, message = record.conditions[0], record.conditions[0].message
    if len(message) >= status_writer.LONGEST_MESSAGE:
        return None
    if is_healthy and ready.status != "True":
        message = ""  # that of the condition is why a commit is not applied
    return Health(record.health, message, counts=counts)
