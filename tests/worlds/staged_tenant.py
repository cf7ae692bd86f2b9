"""A tenant in a world with staged rollouts: who may write DaemonSets, pods, Deployments and
ConfigMaps in the namespace of the agent, with every name, label, annotation, owner reference, hash
and field manager; but no ControllerRevisions, and nothing in the namespace of the service.

What he wants is that a template that Git never had is proven, or that a good commit is reverted.
He takes back fields of the template that Git does not have: no apply removes them. Not among his
actions: other values of the annotations that a rollout reads under our name for the field manager.
Until the deployer corrects them, the controller reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType, Propagation
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, POD, Body, Resource
from gitops_ds.core.rollouts.proven_templates import TemplateProof
from gitops_ds.deploy import state_store
from gitops_ds.kube.apimachinery import pods
from gitops_ds.rollouts.state import keys, proofs
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from gitops_ds.testing import simulator
from tests.worlds import staged_oracle
from tests.worlds.staged_git import DEMANDS, NAME, PORT, SPACE, image
from tests.worlds.staged_world import OWNER, StagedWorld

COPIED = ("name", "namespace", "labels", "annotations")
OF_PODS = ("labels", "annotations", "ownerReferences")
MANAGERS = (names.FIELD_MANAGER, "kubectl-edit", "kube-controller-manager")
MARK = {"gone-with": "the-tenant"}
FORGED = "agent-forged-"
STATED = (
    keys.ROLLOUT_POLICY,
    keys.TARGET,
    keys.PROVEN,
    keys.HALTED,
    keys.PHASE,
    names.COMMIT,
    keys.UPDATE_STRATEGY,
    names.TRACKING_ID,
)


@dataclass
class Tenant:
    """One tenant, with chances of his own: a world without him is the same."""

    world: StagedWorld
    chance: random.Random
    seen: list[dict[str, str]] = field(default_factory=list)  # annotations of earlier times
    number: int = 0

    def __post_init__(self) -> None:
        self._clients = [self.world.client(staged_oracle.TENANT, one) for one in MANAGERS]

    async def run(self) -> None:
        """Acts at random, until it is cancelled. Every third tenant only takes places: the other
        actions hold a rollout before a taken place counts.
        """
        await (self._take_places() if self.chance.random() < 0.3 else self._act())

    async def _act(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(2, 60))
            if self.chance.random() < 0.3:
                await self.world.until(lambda: bool(self.world.touched()), 60)
            action = self.chance.choice(ACTIONS)
            if (live := self.world.live()) is None:
                continue
            self.seen = [*self.seen[-5:], dict(live["metadata"].get("annotations") or {})]
            self.world.record(f"tenant: {action.__name__.strip('_').replace('_', ' ')}")
            with contextlib.suppress(errors.NotFound, errors.Conflict, errors.AlreadyExists):
                await action(self, live)

    async def _take_places(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(1, 60))
            if self.chance.random() < 0.8:  # as the earlier pod of a canary ends
                await self.world.until(lambda: bool(self.world.touched()), 300)
            await _takes_places(self)

    async def leave(self) -> None:
        """Takes back the fields that Git does not have, and what takes places."""
        await self.take_back()
        for resource in (DAEMONSET, POD):
            for body in self._of_him(resource):
                await self._delete(resource, body["metadata"]["name"])

    def _of_him(self, resource: Resource) -> list[Body]:
        every = self.world.cluster.server.store.all(resource)
        return [
            one
            for one in every
            if (one["metadata"].get("labels") or {}).items() >= MARK.items()
            or one["metadata"]["name"].startswith(FORGED)
        ]

    def is_placed(self, name: str) -> bool:
        """Whether a pod is on a node."""
        pod = self.world.cluster.server.store.get(POD, SPACE, name)
        return pod is not None and bool(pod["spec"].get("nodeName"))

    @property
    def client(self) -> simulator.Client:
        """With one of the names of field managers."""
        return self.chance.choice(self._clients)

    @property
    def other(self) -> simulator.Client:
        """With another name than ours."""
        return self.chance.choice(self._clients[1:])

    def evil(self) -> str:
        """An image that Git never has."""
        self.number += 1
        return f"evil-{self.number}"

    async def patch(self, patch: dict[str, Any], *, type: PatchType = PatchType.STRATEGIC) -> None:
        """Of the DaemonSet of the agent."""
        await self.client.patch(DAEMONSET, SPACE, NAME, patch, type=type)

    async def take_back(self) -> None:
        """The fields that Git does not have."""
        live = self.world.live()
        if live is None:
            return
        requests = live["spec"]["template"]["spec"]["containers"][0].get("resources") or {}
        more = {"memory": None} if "memory" in (requests.get("requests") or {}) else {}
        container = {"name": "agent", "resources": {"requests": more}}
        pod = {"nodeSelector": None, **({"containers": [container]} if more else {})}
        await self.patch({"spec": {"minReadySeconds": 0, "template": {"spec": pod}}})

    async def _delete(self, resource: Resource, name: str, **how: Any) -> None:
        with contextlib.suppress(errors.NotFound):
            await self.client.delete(resource, SPACE, name, **how)

    def copy(self, live: Body, tag: str = "", **pod: Any) -> dict[str, Any]:
        """The DaemonSet as he read it, with another image and more fields of the pod."""
        template = live["spec"]["template"]
        (first, *more) = template["spec"]["containers"]
        containers = [{**first, "image": image(tag)}, *more] if tag else [first, *more]
        metadata = {name: live["metadata"][name] for name in COPIED if name in live["metadata"]}
        spec = {**template["spec"], "containers": containers, **pod}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {**live["spec"], "template": {**template, "spec": spec}},
        }

    async def apply(self, body: Body, *managers: str) -> None:
        """A server-side apply, in most cases under our name."""
        ours = names.FIELD_MANAGER
        manager = self.chance.choice(managers or (ours, ours, "kubectl"))
        await self.client.apply(DAEMONSET, body, manager=manager, force=True)


# --- the DaemonSet of the agent


async def _edits_the_image(tenant: Tenant, live: Body) -> None:
    containers = [{"name": "agent", "image": image(tenant.evil())}]
    await tenant.patch({"spec": {"template": {"spec": {"containers": containers}}}})


async def _removes_every_node(tenant: Tenant, live: Body) -> None:
    await tenant.patch({"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}})
    await asyncio.sleep(tenant.chance.uniform(1, 40))
    await tenant.take_back()


async def _adds_requests(tenant: Tenant, live: Body) -> None:
    container = {"name": "agent", "resources": {"requests": {"memory": "1Ti"}}}
    await tenant.patch({"spec": {"template": {"spec": {"containers": [container]}}}})
    await asyncio.sleep(tenant.chance.uniform(1, 90))
    await tenant.take_back()


async def _slows_readiness(tenant: Tenant, live: Body) -> None:
    await tenant.patch({"spec": {"minReadySeconds": 3600}})
    await asyncio.sleep(tenant.chance.uniform(1, 60))
    await tenant.take_back()


async def _applies_under_our_name(tenant: Tenant, live: Body) -> None:
    await tenant.apply(tenant.copy(live, tenant.evil()))


async def _creates_it_again(tenant: Tenant, live: Body) -> None:
    """With its pods or without them."""
    body = tenant.copy(live, tenant.chance.choice(("", tenant.evil())), **_elsewhere(tenant))
    how = tenant.chance.choice((Propagation.BACKGROUND, Propagation.ORPHAN))
    await tenant._delete(DAEMONSET, NAME, propagation=how)
    await tenant.apply(body)


def _elsewhere(tenant: Tenant) -> dict[str, Any]:
    return {"nodeSelector": {"no": "where"}} if tenant.chance.random() < 0.2 else {}


async def _deletes_it(tenant: Tenant, live: Body) -> None:
    await tenant._delete(DAEMONSET, NAME, propagation=Propagation.BACKGROUND)


async def _removes_annotations(tenant: Tenant, live: Body) -> None:
    chosen = tenant.chance.sample(STATED, tenant.chance.randint(1, len(STATED)))
    await tenant.patch({"metadata": {"annotations": dict.fromkeys(chosen)}})


async def _restores_annotations(tenant: Tenant, live: Body) -> None:
    await _annotate(tenant, live, tenant.chance.choice(tenant.seen))


async def _forges_annotations(tenant: Tenant, live: Body) -> None:
    """A template of his is stated to be proven, a revision of it to be the target, in one stage."""
    evil = tenant.evil()
    forged = tenant.copy(live, evil)
    identity = proofs.identity(forged["spec"]["template"])
    commit = tenant.world.history.id(tenant.world.history.at)
    revisions = tenant.world.cluster.server.store.all(CONTROLLER_REVISION)
    target = tenant.chance.choice(revisions)["metadata"]["name"] if revisions else ""
    stated = {
        keys.PROVEN: proofs.encoded(TemplateProof(identity, commit, tenant.world.now)),
        keys.TARGET: target,
        names.COMMIT: commit,
        keys.HALTED: "[]",
        keys.PHASE: tenant.chance.choice(("Progressing", RolloutPhase.COMPLETE)),
        keys.ROLLOUT_POLICY: json.dumps({"policy": {"stages": ["all"]}, "pools": []}),
    }
    chosen = tenant.chance.sample(sorted(stated), tenant.chance.randint(1, len(stated)))
    await _annotate(
        tenant, forged if keys.PROVEN in chosen else live, {one: stated[one] for one in chosen}
    )


async def _annotate(tenant: Tenant, live: Body, annotations: dict[str, str]) -> None:
    """By an apply of the whole object, or by a patch."""
    if tenant.chance.random() < 0.5:
        body = tenant.copy(live)
        body["metadata"]["annotations"] = {**body["metadata"]["annotations"], **annotations}
        await tenant.apply(body, *MANAGERS[1:])
    else:
        await tenant.other.patch(DAEMONSET, SPACE, NAME, {"metadata": {"annotations": annotations}})


# --- other objects


async def _has_a_daemonset(tenant: Tenant, live: Body) -> None:
    """One of his own, with our labels and annotations, that takes the host port of the agent."""
    name, labels = f"mine-{tenant.number}", {"app": "mine", **MARK}
    body = tenant.copy(live, tenant.evil())
    metadata, spec = body["metadata"], body["spec"]
    metadata |= {"name": name, "labels": {**(metadata.get("labels") or {}), **labels}}
    template = spec["template"]
    spec |= {"selector": {"matchLabels": labels}, "updateStrategy": {"type": "RollingUpdate"}}
    spec["template"] = {**template, "metadata": {"labels": labels}}
    await tenant.client.create(DAEMONSET, body)
    await asyncio.sleep(tenant.chance.uniform(20, 150))
    await tenant._delete(DAEMONSET, name)


async def _takes_places(tenant: Tenant) -> None:
    """Pods that wait for the host port or the CPU of an agent. The place of a canary that is
    nominated for its successor is free for pods of a higher priority. They stay for longer than a
    pod has to become ready.
    """
    ports: dict[str, Any] = {"ports": [{"containerPort": PORT, "hostPort": PORT}]}
    room: dict[str, Any] = {"resources": {"requests": {"cpu": "7500m"}}}
    tenant.world.record("tenant: takes places")
    taken = []
    for _ in range(tenant.chance.randint(1, 3)):
        tenant.number += 1
        name = f"web-{tenant.number}"
        demands = tenant.chance.choice((ports, room))
        # Without an owner: the garbage collector deletes a pod whose owner does not exist.
        metadata = {"name": name, "namespace": SPACE, "labels": {"app": "web", **MARK}}
        spec: dict[str, Any] = {"priority": tenant.chance.choice((0, 1, 1))}
        spec["containers"] = [{"name": "web", "image": "example.com/web:1", **demands}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await tenant.client.create(POD, pod)
        taken.append(name)
    await tenant.world.until(lambda: any(map(tenant.is_placed, taken)), 100)
    await asyncio.sleep(tenant.chance.uniform(60, 200))
    for name in taken:
        await tenant._delete(POD, name)


async def _deletes_pods(tenant: Tenant, live: Body) -> None:
    every = tenant.world.cluster.server.store.all(POD)
    agents = [one for one in every if (one["metadata"].get("labels") or {}).get("app") == "agent"]
    for body in tenant.chance.sample(agents, min(len(agents), tenant.chance.randint(1, 3))):
        await tenant._delete(POD, body["metadata"]["name"])


async def _replaces_a_pod(tenant: Tenant, live: Body) -> None:
    """By one of his own, with the owner, the labels and the hash of that pod, or of another one."""
    every = tenant.world.cluster.server.store.all(POD)
    agents = [one for one in every if (one["metadata"].get("labels") or {}).get("app") == "agent"]
    if not agents:
        return
    body, like = tenant.chance.choice(agents), tenant.chance.choice(agents)
    node = body["spec"].get("nodeName") or pods.target(body["spec"])
    metadata = like["metadata"]
    forged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{FORGED}{tenant.evil()}",
            "namespace": SPACE,
            **{name: metadata[name] for name in OF_PODS if name in metadata},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "agent", "image": image(tenant.evil()), **DEMANDS}],
        },
    }
    await tenant._delete(POD, body["metadata"]["name"])
    await asyncio.sleep(tenant.chance.choice((0.0, 0.0, 2.0)))
    await tenant.client.create(POD, forged)


async def _copies_the_state(tenant: Tenant, live: Body) -> None:
    """A ConfigMap with the name of the state, in the namespace of the agent."""
    name = state_store.config_map_name(OWNER)
    labels = dict(live["metadata"].get("labels") or {})
    metadata = {"name": name, "namespace": SPACE, "labels": labels}
    await tenant._delete(CONFIG_MAP, name)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await tenant.client.create(CONFIG_MAP, {**body, "data": {"templates": "{}"}})


Action = Callable[[Tenant, Body], Awaitable[None]]
ACTIONS: tuple[Action, ...] = (
    _edits_the_image,
    _removes_every_node,
    _adds_requests,
    _slows_readiness,
    _applies_under_our_name,
    _applies_under_our_name,
    _creates_it_again,
    _creates_it_again,
    _deletes_it,
    _removes_annotations,
    _restores_annotations,
    _forges_annotations,
    _forges_annotations,
    _has_a_daemonset,
    _deletes_pods,
    _replaces_a_pod,
    _copies_the_state,
)
