"""The health and the staged rollouts of all agents, from one set of lists.

The reason why pods are refused is in the events FailedCreate and FailedPlacement of their
DaemonSet: the built-in controller reports a quota, a policy or a webhook only there. It retries
after at most 1,000 s, so an older event does not count.
https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gitops_ds.controller import pod_warnings
from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.daemonset import PodCause
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.objects import DAEMONSET, EVENT, Body, Key
from gitops_ds.kube.apimachinery import pod_cause
from gitops_ds.rollouts.decisions.stage_inputs import OtherPods
from gitops_ds.rollouts.state import daemonset_statements
from gitops_ds.rollouts.views import staged_rollouts
from gitops_ds.rollouts.views.staged_rollouts import Assemble, StagedRollout
from gitops_ds.status import health

_PODS = 40  # pods of which a command reads the warning events, one request each


class AgentHealths(msgspec.Struct, frozen=True):
    """The health of each agent, and the rollouts in progress, by DaemonSet."""

    healths: Mapping[Key, Health]
    rollouts: Mapping[Key, StagedRollout | None] = {}


async def read(
    cluster: ClusterReader,
    seen: Sequence[Observation],
    applied: Sequence[Observation],
    *,
    has_nodes: bool,
    others: OtherPods | None = None,
) -> AgentHealths:
    """The healths of these DaemonSets; with `has_nodes` false by their status alone. `applied` are
    those from Git, which rollouts may wait for; `others` the pods of other owners. Raises
    ClusterError.
    """
    if not has_nodes:
        return AgentHealths(
            {observation.daemonset.key: _by_status(observation) for observation in seen}
        )
    warnings = await _warnings(cluster, seen)
    assemble = staged_rollouts.from_objects(applied, warnings, others)
    return AgentHealths(
        await _healths(cluster, seen, assemble, warnings),
        {
            observation.daemonset.key: staged_rollouts.read(observation, assemble)
            for observation in seen
        },
    )


def _by_status(seen: Observation) -> Health:
    """The health without nodes, by the rule of `kubectl rollout status`."""
    status = daemonset_statements.rollout_status(seen.daemonset.raw)
    return Health(HealthState.HEALTHY if status.done else HealthState.PROGRESSING, status.message)


async def _warnings(cluster: ClusterReader, seen: Sequence[Observation]) -> Mapping[str, PodCause]:
    """The newest warning events of some pods that are not well, of each DaemonSet before further
    ones; none without permission.
    """
    of_each = (
        [
            pod
            for pod in pod_warnings.unwell(observation).values()
            if pod_warnings.first_read(pod) <= observation.now
        ]
        for observation in seen
    )
    in_turn = (pod for pods in itertools.zip_longest(*of_each) for pod in pods if pod is not None)
    try:
        return await pod_warnings.read(cluster, itertools.islice(in_turn, _PODS))
    except errors.Forbidden:
        return {}


async def _healths(
    cluster: ClusterReader,
    seen: Sequence[Observation],
    assemble: Assemble,
    warnings: Mapping[str, PodCause],
) -> Mapping[Key, Health]:
    """The health of each agent; if nodes wait for a pod, with the reason of refused pods."""
    healths = {
        observation.daemonset.key: health.judge(observation, "", assemble, warnings)
        for observation in seen
    }
    if any(map(waits_for_pods, healths.values())):
        why = await refused_pods(cluster, seen[0].now)
        for observation in seen:
            if waits_for_pods(healths[observation.daemonset.key]) and (
                refused := why.get(observation.daemonset.uid)
            ):
                healths[observation.daemonset.key] = health.judge(
                    observation, refused, assemble, warnings
                )
    return healths


STILL = 1_200.0  # seconds for which an event counts
REASONS = ("FailedCreate", "FailedPlacement")
_WAITS = frozenset({"NoPod", "Refused"})
_POD = re.compile(r'pods "[^"]*" is ')  # the name of the pod differs each time


def waits_for_pods(health: Health) -> bool:
    """Whether a node waits for a pod, so that the events must be read."""
    return any(node.reason in _WAITS for node in health.nodes)


async def refused_pods(cluster: ClusterReader, now: float) -> Mapping[str, str]:
    """The last message about each DaemonSet, by its UID; empty without permission to list events.
    Raises ClusterError.
    """
    bodies: list[Body] = []
    for reason in REASONS:
        try:
            which = Selection(fields=f"reason={reason},involvedObject.kind=DaemonSet")
            bodies += (await cluster.list(EVENT, which)).items
        except errors.Forbidden:
            return {}
    return latest_refusals(bodies, now - STILL)


def latest_refusals(events: Iterable[Body], since: float) -> Mapping[str, str]:
    """The last message about each DaemonSet, by its UID, after `since` (seconds since 1970)."""
    by_pod: dict[str, tuple[float, str]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        at = pod_cause.last_seen(event)
        uid = str(about.get("uid") or "")
        is_ours = event.get("reason") in REASONS and about.get("kind") == DAEMONSET.kind
        if is_ours and at > max(since, by_pod.get(uid, (0.0,))[0]):
            by_pod[uid] = (
                at,
                _POD.sub(
                    "pods are ", str(event.get("message") or "").removeprefix("Error creating: ")
                ),
            )
    return {uid: words for uid, (_, words) in by_pod.items()}
