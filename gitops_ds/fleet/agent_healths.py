"""The health and the staged rollouts of all agents, from one set of lists."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from gitops_ds import errors
from gitops_ds.apimachinery import daemonsets
from gitops_ds.controller import pod_warnings
from gitops_ds.fleet import failed_create_events, health, staged_rollouts
from gitops_ds.fleet.staged_rollouts import Assemble, StagedRollout
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.daemonset import PodCause
from gitops_ds.model.decision import Observation
from gitops_ds.model.health import Health, HealthState
from gitops_ds.model.objects import Key

_PODS = 40  # pods of which a command reads the warning events, one request each


class AgentHealths(msgspec.Struct, frozen=True):
    """The health of each agent, and the rollouts in progress, by DaemonSet."""

    healths: Mapping[Key, Health]
    rollouts: Mapping[Key, StagedRollout | None] = {}


async def read(
    cluster: Cluster,
    seen: Sequence[Observation],
    *,
    has_nodes: bool,
    busy_nodes: frozenset[str] = frozenset(),
) -> AgentHealths:
    """The healths of these DaemonSets; with `has_nodes` false by their status alone. `busy_nodes`
    are those with pods that are not of a DaemonSet. Raises ClusterError.
    """
    if not has_nodes:
        return AgentHealths({one.daemonset.key: _by_status(one) for one in seen})
    warnings = await _warnings(cluster, seen)
    assemble = staged_rollouts.from_objects(seen, warnings, busy_nodes)
    return AgentHealths(
        await _healths(cluster, seen, assemble, warnings),
        {one.daemonset.key: staged_rollouts.read(one, assemble) for one in seen},
    )


def _by_status(seen: Observation) -> Health:
    """The health without nodes, by the rule of `kubectl rollout status`."""
    status = daemonsets.rollout_status(seen.daemonset.raw)
    return Health(HealthState.HEALTHY if status.done else HealthState.PROGRESSING, status.message)


async def _warnings(cluster: Cluster, seen: Sequence[Observation]) -> Mapping[str, PodCause]:
    """The newest warning events of some pods that are not well, of each DaemonSet before further
    ones; none without permission.
    """
    of_each = (
        [
            pod
            for pod in pod_warnings.unwell(one).values()
            if pod_warnings.first_read(pod) <= one.now
        ]
        for one in seen
    )
    in_turn = (pod for pods in itertools.zip_longest(*of_each) for pod in pods if pod is not None)
    try:
        return await pod_warnings.read(cluster, itertools.islice(in_turn, _PODS))
    except errors.Forbidden:
        return {}


async def _healths(
    cluster: Cluster,
    seen: Sequence[Observation],
    assemble: Assemble,
    warnings: Mapping[str, PodCause],
) -> Mapping[Key, Health]:
    """The health of each agent; if nodes wait for a pod, with the reason of refused pods."""
    healths = {one.daemonset.key: health.judge(one, "", assemble, warnings) for one in seen}
    if any(map(failed_create_events.waits, healths.values())):
        why = await failed_create_events.read(cluster, seen[0].now)
        for one in seen:
            if failed_create_events.waits(healths[one.daemonset.key]) and (
                refused := why.get(one.daemonset.uid)
            ):
                healths[one.daemonset.key] = health.judge(one, refused, assemble, warnings)
    return healths
