"""A ConfigMap with the status of each agent, in the namespace of the state, for `kubectl wait` and
other tools; written when the status changes.

Its conditions are Ready, Reconciling and Stalled, with the reasons of Flux; the last two exist only
while they are true.
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md and
https://fluxcd.io/flux/components/kustomize/kustomizations/
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster, Selection
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.objects import CONFIG_MAP, Body, Key
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.status import agents
from gitops_ds.status.agents import Agent
from gitops_ds.status.tracker import StatusTracker

OF = f"{names.DOMAIN}/status-of"  # label: the ID of the owner of the agent
EVERY = 5.0  # minimum seconds between two writes of an object
RETRY = 30.0  # seconds until a failed write is retried
OWNERS = 60.0  # seconds between two checks for new owners without a changed agent
LONGEST_MESSAGE = 1024  # characters of a longer one that are kept
_LONGEST = 253  # characters of a name


class StatusWriter:
    """Writes the objects of the agents of `tracker` for all owners in `states`. `clock` returns
    seconds since 1970.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        tracker: StatusTracker,
        states: Callable[[], Mapping[str, DeployerState]],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._namespace, self._tracker = cluster, namespace, tracker
        self._states, self._clock = states, clock
        self._known: dict[str, Body] = {}
        self._owners: set[str] = set()
        self._next: dict[Key, float] = {}

    async def run(self, acting: Callable[[], bool] = lambda: True) -> None:
        """Writes changed objects while `acting` returns true, until it is cancelled. Failed writes
        are retried.
        """
        self._known, self._owners = {}, set()  # another replica may have written since
        changes, loop = self._tracker.changed(), asyncio.get_running_loop()
        pending = {agent.key for agent in self._tracker.agents()}
        while True:
            wait = min((self._next.get(key, 0.0) for key in pending), default=loop.time() + OWNERS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wait):
                    pending |= await anext(changes)
            if not acting():
                return
            due = {key for key in pending if self._next.get(key, 0.0) <= loop.time()}
            try:
                await self._learn()
                for key in sorted(due):
                    if await self._put(key):
                        self._next[key] = loop.time() + EVERY
                    pending.discard(key)
            except errors.ClusterError:
                self._next |= dict.fromkeys(pending, loop.time() + RETRY)
            self._next = {
                key: at for key, at in self._next.items() if at > loop.time() or key in pending
            }

    async def _learn(self) -> None:
        """Reads the objects of new owners, and deletes those without an agent."""
        owners = self._states().keys() - self._owners
        if not owners:
            return
        existing = {name_of(agent.key) for agent in self._tracker.agents() if self._owner(agent)}
        for owner in sorted(owners):
            selection = Selection(self._namespace, f"{OF}={owner}")
            for body in (await self._cluster.list(CONFIG_MAP, selection)).items:
                name = str(body["metadata"]["name"])
                if name in existing:
                    self._known[name] = body
                else:
                    await self._delete(name)
        self._owners |= owners

    async def _put(self, key: Key) -> bool:
        """Writes or deletes the object of an agent; returns whether a request was needed."""
        agent, name = self._tracker.agent(key), name_of(key)
        owner = self._owner(agent) if agent is not None else ""
        if agent is None or owner not in self._owners:
            if name in self._known:
                await self._delete(name)
                return True
            return False
        before = self._known.get(name)
        status = status_of(agent, _status(before), self._clock())
        if before is not None and status == _status(before):
            return False
        body = {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "metadata": {
                "namespace": self._namespace,
                "name": name,
                "labels": {"app.kubernetes.io/managed-by": "gitops-ds", OF: owner},
            },
            "data": _data(status),
        }
        self._known[name] = (
            await self._cluster.apply(CONFIG_MAP, body, manager=names.FIELD_MANAGER, force=True)
        ).body
        return True

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(errors.NotFound):
            await self._cluster.delete(CONFIG_MAP, self._namespace, name)
        self._known.pop(name, None)

    def _owner(self, agent: Agent) -> str:
        """The ID of its owner; of a missing agent, the owner whose inventory contains it."""
        states = self._states()
        owner = agent.owner
        return (
            owner
            if owner in states
            else next((id for id, state in states.items() if agent.key in state.inventory), "")
        )


def name_of(key: Key) -> str:
    """The name of the ConfigMap; the end of a name that is too long is replaced by a hash."""
    whole = f"gitops-ds-status-{key.namespace}.{key.name}"
    return (
        whole
        if len(whole) <= _LONGEST
        else f"{whole[: _LONGEST - 13]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
    )


def status_of(agent: Agent, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The status of an agent; equal to `before` if only the time changed."""
    daemonset, health, node_counts = agent.seen.daemonset, agent.health, agent.health.node_counts
    current, (sync, why) = agent.current, agents.sync_of(agent)
    nodes = {
        "updated": node_counts.updated,
        "starting": node_counts.starting,
        "old": node_counts.old,
        "parked": node_counts.parked,
    }
    nodes["joining"] = node_counts.joining
    faults = {
        "nodeFault": node_counts.node_fault,
        "templateFault": node_counts.template_fault,
        "refused": node_counts.refused,
    }
    return {
        "daemonSet": described(daemonset),
        "commit": daemonset.annotations.get(names.COMMIT, ""),
        "revision": current.number if current else 0,
        "health": health.state.value,
        "sync": sync,
        "counts": agents.counts_json(health.counts) if health.counts is not None else None,
        "nodes": {**nodes, **faults},
        "conditions": conditions(
            health,
            why if sync == "OutOfSync" else "",
            now,
            before.get("conditions") or (),
        ),
    }


def described(daemonset: DaemonSet) -> dict[str, Any]:
    """The DaemonSet that a status is of, with its generation."""
    return {
        "namespace": daemonset.key.namespace,
        "name": daemonset.key.name,
        "uid": daemonset.uid,
        "generation": daemonset.generation,
        "observedGeneration": daemonset.observed_generation,
    }


def _status(body: Body | None) -> dict[str, Any]:
    """The status in a ConfigMap; empty if it is malformed."""
    if body is None:
        return {}
    with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError):
        return dict(orjson.loads(body["data"]["status.json"]))
    return {}


def _data(status: Mapping[str, Any]) -> dict[str, str]:
    """The data: the status as JSON, and the fields for `kubectl get` and `kubectl
    wait --for=jsonpath`.
    """
    ready = status["conditions"][0]
    short = {name: str(status[name]) for name in ("health", "commit", "revision", "sync")}
    return {
        **short,
        "ready": ready["status"],
        "message": ready["message"],
        "status.json": orjson.dumps(status, option=orjson.OPT_SORT_KEYS).decode(),
    }


SUCCEEDED, FAILED, PROGRESSING, RETRYING = (
    "ReconciliationSucceeded",
    "HealthCheckFailed",
    "Progressing",
    "ProgressingWithRetry",
)

_READY: Mapping[HealthState, tuple[str, str]] = {
    HealthState.HEALTHY: ("True", SUCCEEDED),
    HealthState.PROGRESSING: ("Unknown", PROGRESSING),
    HealthState.DEGRADED: ("False", FAILED),
    HealthState.FAILED: ("False", FAILED),
    HealthState.MISSING: ("False", "Missing"),
    HealthState.SUSPENDED: ("Unknown", "Suspended"),
}
_BESIDE: Mapping[HealthState, tuple[str, str]] = {
    HealthState.PROGRESSING: ("Reconciling", PROGRESSING),
    HealthState.DEGRADED: ("Reconciling", RETRYING),
    HealthState.MISSING: ("Reconciling", RETRYING),
    HealthState.FAILED: ("Stalled", FAILED),
}


def conditions(
    health: Health,
    unapplied: str,
    now: float,
    before: Iterable[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The conditions; one that is unchanged from `before` keeps its time.

    `unapplied` is the reason why the wanted commit is not applied as a whole, else empty.
    """
    ready, message = _READY[health.state], health.message
    if unapplied and health.state is HealthState.HEALTHY:
        ready, message = ("False", "ReconciliationFailed"), unapplied
    rows = [("Ready", *ready, message)]
    if health.state in _BESIDE:
        type, reason = _BESIDE[health.state]
        rows.append((type, "True", reason, health.message))
    elif unapplied:
        rows.append(("Reconciling", "True", RETRYING, unapplied))
    since = {
        (old.get("type"), old.get("status")): str(old.get("lastTransitionTime") or "")
        for old in before
    }
    return [
        {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "lastTransitionTime": since.get((type, status)) or timestamps.text(now),
        }
        for type, status, reason, message in rows
    ]
