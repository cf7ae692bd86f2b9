"""An object with the status of each agent, for other tools; written when the status changes.

It is a ConfigMap in the namespace of the state, or an AgentStatus if its CustomResourceDefinition
(deploy/crd/) is installed: `kubectl wait --for=condition=Ready` and every tool that reads kstatus
support the latter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gitops_ds import errors
from gitops_ds.fleet import agents
from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, PatchType, Selection
from gitops_ds.model.deployer_state import DeployerState
from gitops_ds.model.objects import CONFIG_MAP, Body, Key, Resource
from gitops_ds.telemetry import kstatus

KIND = "AgentStatus"
OF = f"{names.DOMAIN}/status-of"  # label: the ID of the owner of the agent
EVERY = 5.0  # minimum seconds between two writes of an object
RETRY = 30.0  # seconds until a failed write is retried
OWNERS = 60.0  # seconds between two checks for new owners without a changed agent
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
        self._kind: Resource | None = None
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
        if self._kind is None:
            self._kind = (await self._cluster.resources(refresh=True)).get(
                (names.DOMAIN, KIND), CONFIG_MAP
            )
        existing = {
            self._name(agent.key): agent.key
            for agent in self._tracker.agents()
            if self._owner(agent)
        }
        for resource in {CONFIG_MAP, self._kind}:
            for owner in sorted(owners):
                listing = await self._cluster.list(
                    resource, Selection(self._namespace, f"{OF}={owner}")
                )
                for body in listing.items:
                    name = str(body["metadata"]["name"])
                    if resource == self._kind and name in existing:
                        self._known[name] = body
                    else:
                        await self._delete(resource, name)
        self._owners |= owners

    async def _put(self, key: Key) -> bool:
        """Writes or deletes the object of an agent; returns whether a request was needed."""
        agent, name = self._tracker.agent(key), self._name(key)
        owner = self._owner(agent) if agent is not None else ""
        if self._kind is None or owner not in self._owners:
            if name in self._known and self._kind is not None:
                await self._delete(self._kind, name)
                return True
            return False
        assert agent is not None
        before = self._known.get(name)
        status = status_of(agent, _status(before), self._clock())
        if before is not None and status == _status(before):
            return False
        if self._kind == CONFIG_MAP:
            body = {**self._named(name, owner), "data": _flat(status)}
            self._known[name] = (
                await self._cluster.apply(CONFIG_MAP, body, manager=names.FIELD_MANAGER, force=True)
            ).body
            return True
        if before is None:
            body = {
                **self._named(name, owner),
                "spec": {"daemonSet": {"namespace": key.namespace, "name": key.name}},
            }
            before = (
                await self._cluster.apply(self._kind, body, manager=names.FIELD_MANAGER, force=True)
            ).body
        patch = {
            "status": {**status, "observedGeneration": before["metadata"].get("generation", 1)}
        }
        written = await self._cluster.patch(
            self._kind, self._namespace, name, patch, type=PatchType.MERGE, subresource="status"
        )
        self._known[name] = written
        return True

    async def _delete(self, resource: Resource, name: str) -> None:
        with contextlib.suppress(errors.NotFound):
            await self._cluster.delete(resource, self._namespace, name)
        self._known.pop(name, None)

    def _owner(self, agent: Agent) -> str:
        """The ID of its owner; of a missing agent, the owner whose inventory contains it."""
        states = self._states()
        owner = agents.owner(agent.seen)
        return (
            owner
            if owner in states
            else next((id for id, state in states.items() if agent.key in state.inventory), "")
        )

    def _named(self, name: str, owner: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/managed-by": "gitops-ds", OF: owner}
        kind = self._kind or CONFIG_MAP
        metadata = {"namespace": self._namespace, "name": name, "labels": labels}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    def _name(self, key: Key) -> str:
        """`gitops-ds-status-NAMESPACE.NAME` of a ConfigMap, `NAMESPACE.NAME` of an AgentStatus;
        the end of a name that is too long is replaced by a hash.
        """
        prefix = "gitops-ds-status-" if self._kind == CONFIG_MAP else ""
        whole = f"{prefix}{key.namespace}.{key.name}"
        return (
            whole
            if len(whole) <= _LONGEST
            else f"{whole[: _LONGEST - 13]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
        )


def status_of(agent: Agent, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The status of an agent; equal to `before` if only the time changed."""
    daemonset, health, tally = agent.seen.daemonset, agent.health, agent.health.tally
    current, (sync, why) = agent.current, agents.sync_of(agent)
    nodes = {
        "updated": tally.updated,
        "starting": tally.starting,
        "old": tally.old,
        "parked": tally.parked,
    }
    nodes["joining"] = tally.joining
    faults = {
        "nodeFault": tally.node_fault,
        "templateFault": tally.template_fault,
        "refused": tally.refused,
    }
    return {
        "observedGeneration": before.get("observedGeneration", 1),
        "daemonSet": {
            "namespace": agent.key.namespace,
            "name": agent.key.name,
            "generation": daemonset.generation,
            "observedGeneration": daemonset.observed_generation,
        },
        "commit": daemonset.annotations.get(names.COMMIT, ""),
        "revision": current.number if current else 0,
        "health": health.state.value,
        "sync": sync,
        "nodes": {**nodes, **faults},
        "conditions": kstatus.conditions(
            health,
            why if sync == "OutOfSync" else "",
            before.get("observedGeneration", 1),
            now,
            before.get("conditions") or (),
        ),
    }


def _status(body: Body | None) -> dict[str, Any]:
    """The status in an object of either kind; empty if it is malformed."""
    if body is None:
        return {}
    if body.get("kind") == KIND:
        return dict(body.get("status") or {})
    with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError):
        return dict(orjson.loads(body["data"]["status.json"]))
    return {}


def _flat(status: Mapping[str, Any]) -> dict[str, str]:
    """The data of a ConfigMap: the status as JSON, and the fields for `kubectl get` and `kubectl
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
