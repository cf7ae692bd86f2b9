"""The health of agents at rest as their service recorded it. So a table of agents needs no pods of
those that are healthy: a list of pods grows with nodes and agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.daemonset import Counts
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import Health, HealthState, NodeCounts
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
    """The healths of those of these DaemonSets that are at rest and healthy, by the record of a
    service that runs; `sources` are by the ID of the owner. Empty without permission to list
    ConfigMaps. Raises ClusterError.

    A record counts for the DaemonSet and the generation that it names, while no rollout is in
    progress and the status of the DaemonSet has an available pod of its template on each node.
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
    """The recorded health, None if it is not that of a healthy DaemonSet at rest."""
    daemonset, counts = seen.daemonset, seen.daemonset.counts or Counts()
    nodes, annotations = counts.desired, daemonset.annotations
    moves = (
        daemonset.deleting or daemonset.suspended or daemonset_statements.has_target(annotations)
    )
    is_whole = counts == Counts(nodes, nodes, 0, nodes, nodes, nodes)
    is_current = record.daemonset == status_writer.described(daemonset)
    is_applied = record.commit == annotations.get(names.COMMIT, "")
    is_healthy = record.health is HealthState.HEALTHY and record.conditions
    if moves or not (is_whole and is_current and is_applied and is_healthy):
        return None
    ready = record.conditions[0]  # not True: its message is why a commit is not applied
    message = ready.message if ready.status == "True" else ""
    return Health(record.health, message, (), NodeCounts(updated=nodes), None, counts)
