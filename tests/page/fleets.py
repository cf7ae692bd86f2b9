"""Fleets for the page: agents from bodies like those of an API server, any number of nodes, and a
view of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body, CommitId, Key
from gitops_ds.core.sources.bundle import Pool
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.startup_taints import NodeWait
from gitops_ds.daemonset import cache
from gitops_ds.kube.apimachinery import revisions, timestamps
from gitops_ds.service.web.page.pages import Book
from gitops_ds.service.web.page.view import PageEvent
from gitops_ds.status import health
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow

NOW = datetime(2026, 11, 21, 9, 40, tzinfo=UTC).timestamp()
OLD, NEW, OLDER = ("1f0c" + "a" * 36, "2e9d" + "b" * 36, "05b7" + "c" * 36)
POOLS = ("general", "gpu", "ingress")


@dataclass
class Show:
    """A view whose content a test sets."""

    found: tuple[Agent, ...] = ()
    cluster: str = "eu-1"
    wants: dict[Key, Body] = field(default_factory=dict)
    happened: list[PageEvent] = field(default_factory=list)
    infos: dict[str, CommitInfo] = field(default_factory=dict)
    version: int = 1
    followed: list[SourceStatus] = field(default_factory=list)
    ordered: list[ClusterRow] = field(default_factory=list)
    grouped: list[Pool] = field(default_factory=list)
    clock: Callable[[], float] = lambda: NOW
    not_read: str = ""
    waiting: dict[str, NodeWait] = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def unread(self) -> str:
        return self.not_read

    def now(self) -> float:
        return self.clock()

    def agents(self) -> Sequence[Agent]:
        return self.found

    def wanted(self, key: Key) -> Body | None:
        return self.wants.get(key)

    def pools(self) -> Sequence[Pool]:
        return tuple(self.grouped)

    def sources(self) -> Sequence[SourceStatus]:
        return tuple(self.followed)

    def waits(self) -> Mapping[str, NodeWait]:
        return self.waiting

    def clusters(self) -> Sequence[ClusterRow]:
        return tuple(self.ordered)

    def events(self) -> Sequence[PageEvent]:
        return tuple(self.happened)

    async def commits(self, ids: Sequence[str]) -> Mapping[str, CommitInfo]:
        return {id: self.infos[id] for id in ids if id in self.infos}

    async def changed(self, version: int) -> None:
        while self.version == version:
            await self._moved.wait()

    def move(self, *agents: Agent) -> None:
        """Replaces the agents."""
        self.found = agents or self.found
        self.version += 1
        self._moved.set()
        self._moved = asyncio.Event()


def info(
    id: str, subject: str, author: str = "Dana Doe <dana@example.com>", day: int = 20
) -> CommitInfo:
    return CommitInfo(CommitId(id), (), datetime(2026, 11, day, 9, 30, tzinfo=UTC), author, subject)


def node(name: str, pool: str, zone: str, **spec: Any) -> dict[str, Any]:
    ready = spec.pop("ready", True)
    labels = {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/pool": pool,
        "topology.kubernetes.io/zone": zone,
    }
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **labels}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def nodes(count: int) -> list[dict[str, Any]]:
    return [
        node(
            f"ip-10-{n // 250 % 250}-{n % 250}-7.eu-west-1.compute.internal",
            POOLS[n % 10 // 8 + n % 20 // 19],
            f"eu-west-1{'abc'[n % 3]}",
        )
        for n in range(count)
    ]


def template(name: str, image: str, env: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    container = {
        "name": name,
        "image": image,
        "resources": {"limits": {"memory": "200Mi"}},
        **({"env": list(env)} if env else {}),
    }
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


@dataclass
class Fleet:
    """One DaemonSet to be: its templates oldest first with their commits, and what is in the
    way on which node.

    `on` is how many nodes, in order, run each template but the first; `troubles` by node: reason,
    message, and none is ready there.
    """

    name: str
    namespace: str = "node-agents"
    templates: tuple[tuple[dict[str, Any], str], ...] = ()
    on: int = -1
    troubles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    annotations: Mapping[str, str] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)


def wanted(fleet: Fleet) -> dict[str, Any]:
    """The DaemonSet in Git."""
    body, commit = fleet.templates[-1]
    spec = {**body["spec"], **({"nodeSelector": dict(fleet.selector)} if fleet.selector else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": fleet.name,
            "namespace": fleet.namespace,
            "annotations": {names.COMMIT: commit, **fleet.annotations},
        },
        "spec": {
            "selector": {"matchLabels": {"app": fleet.name}},
            "template": {**body, "spec": spec},
        },
    }


def agent(fleet: Fleet, on_nodes: Sequence[Mapping[str, Any]]) -> Agent:
    """The agent in such a cluster."""
    body = wanted(fleet)
    uid = f"uid-{fleet.name}"
    made = timestamps.text(NOW - 86_400)
    body["metadata"] |= {
        "uid": uid,
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": made,
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": fleet.name,
        "uid": uid,
        "controller": True,
    }
    last = body["spec"]["template"]
    kept = [*(one for one, _ in fleet.templates[:-1]), last]
    made_of = [_revision(fleet, number, one, owner) for number, one in enumerate(kept, 1)]
    pods, ready = [], 0
    eligible = [
        one
        for one in on_nodes
        if all(one["metadata"]["labels"].get(k) == v for k, v in fleet.selector.items())
    ]
    have_new = len(eligible) if fleet.on < 0 else fleet.on
    for place, one in enumerate(eligible):
        name = one["metadata"]["name"]
        if name in fleet.absent:
            continue
        revision = made_of[-1] if place < have_new else made_of[-2]
        pods.append(_pod(fleet, name, revision["metadata"]["labels"][names.REVISION_HASH], owner))
        ready += name not in fleet.troubles
    body["status"] = {
        "desiredNumberScheduled": len(eligible),
        "currentNumberScheduled": len(pods),
        "numberReady": ready,
        "numberAvailable": ready,
        "updatedNumberScheduled": min(have_new, len(pods)),
        "numberMisscheduled": 0,
        "observedGeneration": 2,
    }
    known = cache.Cache()
    for resource, items in (
        (NODE, on_nodes),
        (DAEMONSET, [body]),
        (CONTROLLER_REVISION, made_of),
        (POD, pods),
    ):
        known.replace(resource, items, "7")
    seen = known.observe(Key("apps", "DaemonSet", fleet.namespace, fleet.name), NOW)
    assert seen is not None
    commits = {number: CommitId(commit) for number, (_, commit) in enumerate(fleet.templates, 1)}
    last_good = CommitId(fleet.templates[-1][1])
    state = DeployerState(
        last_good=last_good,
        last_attempted=last_good,
        revisions={seen.daemonset.key: commits},
    )
    return Agent(seen, health.judge(seen), state)


def _revision(
    fleet: Fleet, number: int, body: dict[str, Any], owner: dict[str, Any]
) -> dict[str, Any]:
    hash = f"{fleet.name}-hash-{number}"
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{fleet.name}-{number}",
            "namespace": fleet.namespace,
            "uid": f"{hash}-uid",
            "labels": {"app": fleet.name, names.REVISION_HASH: hash},
            "ownerReferences": [owner],
        },
        "data": revisions.data(body),
        "revision": number,
    }


def _pod(fleet: Fleet, node: str, hash: str, owner: dict[str, Any]) -> dict[str, Any]:
    trouble = fleet.troubles.get(node)
    conditions = [
        {
            "type": "Ready",
            "status": "False" if trouble else "True",
            "lastTransitionTime": timestamps.text(NOW - 3600),
        }
    ]
    container: dict[str, Any] = {"name": fleet.name, "ready": not trouble}
    if trouble and trouble[0]:
        container["state"] = {"waiting": {"reason": trouble[0], "message": trouble[1]}}
    return {
        "metadata": {
            "name": f"{fleet.name}-{node.partition('.')[0]}",
            "namespace": fleet.namespace,
            "uid": f"{fleet.name}-{node}",
            "creationTimestamp": timestamps.text(
                NOW - (60 if trouble and not trouble[0] else 3600)
            ),
            "labels": {"app": fleet.name, names.REVISION_HASH: hash},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": "Pending" if trouble else "Running",
            "conditions": conditions,
            "containerStatuses": [container],
        },
    }


def html(show: Show, path: str) -> str:
    """A page as it is sent."""
    return asyncio.run(Book(show).page(path, {})).html.decode()


def text(markup: str) -> str:
    """The text without tags and further white space."""
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def story(count: int = 60) -> Show:
    """A cluster in the middle of its day: a rollout in progress, one that fails, a broken node,
    one suspended, two at rest.
    """
    on = nodes(count)
    called = [one["metadata"]["name"] for one in on]
    on[7] = node(called[7], "general", "eu-west-1b", ready=False, unschedulable=True)
    fluent = (
        (template("fluent-bit", "cr.example.com/fluent-bit:4.0.1"), OLD),
        (template("fluent-bit", "cr.example.com/fluent-bit:4.0.3"), NEW),
    )
    exporter = (template("node-exporter", "quay.io/prometheus/node-exporter:v1.9.1"), OLDER)
    broken = template("gpu-plugin", "cr.example.com/gpu-plugin:0.17"), OLD
    bad = template("gpu-plugin", "cr.example.com/gpu-plugin:0.18-rc"), NEW
    gpu = {"node.kubernetes.io/pool": "gpu"}
    gpus = [
        one["metadata"]["name"]
        for one in on
        if one["metadata"]["labels"]["node.kubernetes.io/pool"] == "gpu"
    ]
    why = "Back-off pulling image cr.example.com/gpu-plugin:0.18-rc: not found"
    crash = "CrashLoopBackOff", "back-off 5m0s restarting failed container"
    halted = {called[7]: ("", ""), called[count * 3 // 5 - 1]: ("", "")}
    pulling = dict.fromkeys(gpus[:2], ("ImagePullBackOff", why))
    fleets = (
        Fleet("fluent-bit", "logging", fluent, on=count * 3 // 5, troubles=halted),
        Fleet("gpu-plugin", "gpu", (broken, bad), on=2, troubles=pulling, selector=gpu),
        Fleet("node-exporter", templates=(exporter,)),
        Fleet(
            "cilium", "kube-system", ((template("cilium", "quay.io/cilium/cilium:v1.18.2"), OLDER),)
        ),
        Fleet(
            "csi-node",
            "storage",
            ((template("csi-node", "cr.example.com/csi:2.1"), OLDER),),
            troubles={called[7]: crash},
        ),
        Fleet(
            "falco",
            "security",
            ((template("falco", "cr.example.com/falco:0.41"), OLD),),
            annotations={names.SUSPEND: "true"},
        ),
    )
    found = tuple(
        sorted(
            (agent(fleet, on) for fleet in fleets),
            key=lambda one: (one.key.namespace, one.key.name),
        )
    )
    wants: dict[Key, Body] = {
        Key("apps", "DaemonSet", fleet.namespace, fleet.name): wanted(fleet) for fleet in fleets
    }
    live = Key("apps", "DaemonSet", "node-agents", "node-exporter")
    wants[live] = wanted(
        Fleet(
            "node-exporter",
            templates=(
                (template("node-exporter", "quay.io/prometheus/node-exporter:v1.10.0"), OLDER),
            ),
        )
    )
    infos = {
        NEW: info(NEW, "fluent-bit 4.0.3, gpu-plugin 0.18", day=21),
        OLD: info(OLD, "Agents for the gpu pool", "Robin Roe <robin@example.com>", 18),
        OLDER: info(OLDER, "node-exporter and cilium for every node", day=3),
    }
    key = Key("apps", "DaemonSet", "logging", "fluent-bit")
    falco = Key("apps", "DaemonSet", "security", "falco")
    typo = (
        "commit 77aa01bc23de is not applied: agents/falco/daemonset.yaml:27:7: DS003 unknown field"
    )
    happened = [
        PageEvent(
            NOW - 40, "Applied", "updated DaemonSet logging/fluent-bit (revision 2)", "good", key
        ),
        PageEvent(
            NOW - 41,
            "NotApplied",
            "not applied: DaemonSet security/falco is suspended",
            "warn",
            falco,
        ),
        PageEvent(
            NOW - 45,
            "NewCommit",
            f"new commit {NEW[:12]} 'fluent-bit 4.0.3, gpu-plugin 0.18' by Dana Doe",
            "plain",
            None,
            NEW,
        ),
        PageEvent(NOW - 4000, "CommitRejected", typo, "bad", None, "77aa01bc23de" + "0" * 28),
    ]
    return Show(found, wants=wants, happened=happened, infos=infos)
