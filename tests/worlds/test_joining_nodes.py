"""A simulated hour of autoscaling: nodes join with the startup taint and leave, agents fail on a
tenth of them, commits are rolled out and reverted in between, and a tenant edits the agents.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops_ds.core.cluster import EventType, PatchType, WatchEvent
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Powers
from gitops_ds.core.live import Node
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Resource
from gitops_ds.core.required_in_git import AgentRecord, RequiredInGit
from gitops_ds.core.startup_taints import OWN, StartupTaintPolicy
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import nodes, pods
from gitops_ds.startup_taints import required_agents
from gitops_ds.startup_taints.startup_taints import StartupTaints
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests import profiles
from tests.controller.test_startup_taints import begin, joining, required, workload
from tests.simulator.setup import KEY, Setup, set_up

AGENTS = ("agent", "cni")
JOINING = 1000  # in an hour
SECONDS = 3600.0
STAYS = 600.0  # seconds until a node leaves
FAILS = "node-*7"  # a tenth of the nodes


async def changes(client: simulator.Client, resource: Resource) -> AsyncIterator[WatchEvent]:
    """Every change from now on; a watch ends after some minutes."""
    version = (await client.list(resource)).version
    while True:
        async for event in client.watch(resource, version):
            version = event.version
            if event.type is not EventType.BOOKMARK:
                yield event


@dataclass
class Watcher:
    """Judges every change of pods and nodes, as the API server stores it."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    complete_at: dict[str, float] = field(default_factory=dict)
    released_at: dict[str, float] = field(default_factory=dict)
    workloads: int = 0
    wrong: list[str] = field(default_factory=list)

    async def follow_pods(self, client: simulator.Client) -> None:
        async for event in changes(client, POD):
            pod = pods.pod_of(event.object)
            before = self.pods.pop(pod.uid, None)
            if event.type is EventType.DELETED:
                continue
            self.pods[pod.uid] = pod
            if pod.owner is None and pod.node and not (before and before.node):
                self.workloads += 1
                if pod.node not in self.complete_at:
                    self.wrong.append(f"{pod.name} started on {pod.node} without its agents")
            elif pod.owner is not None and pod.ready and not pod.terminating:
                self._completed(pod.node)

    async def follow_nodes(self, client: simulator.Client) -> None:
        async for event in changes(client, NODE):
            node = nodes.node_of(event.object)
            if event.type is EventType.DELETED:
                self.nodes.pop(node.name, None)
                continue
            before = self.nodes.get(node.name)
            self.nodes[node.name] = node
            if before and before.uid == node.uid and OWN in before.taints and not node.taints:
                self.released_at[node.name] = virtual_time.clock()()

    def _completed(self, node: str) -> None:
        ready = {
            pod.owner.name
            for pod in self.pods.values()
            if pod.node == node and pod.owner and pod.ready and not pod.terminating
        }
        if ready == set(AGENTS) and node not in self.complete_at:
            self.complete_at[node] = virtual_time.clock()()


async def autoscale(there: Setup, count: int, chance: random.Random) -> None:
    """Nodes join, with a pending workload each, and leave."""
    joined: list[tuple[float, str]] = []
    for number in range(count):
        await asyncio.sleep(chance.expovariate(count / SECONDS))
        there.cluster.add_nodes(joining(range(number, number + 1)))
        await there.people.create(POD, workload(f"web-{number}"))
        now = asyncio.get_running_loop().time()
        joined.append((now + chance.uniform(0.5, 1.5) * STAYS, f"node-{number}"))
        for at, name in [one for one in joined if one[0] <= now]:
            there.cluster.remove_node(name)
            joined.remove((at, name))


@dataclass
class Git:
    """The agents by the record of their commits."""

    there: Setup
    records: dict[str, AgentRecord] = field(default_factory=dict)

    async def apply(self, image: str) -> None:
        """A commit with another image of the first agent, which also corrects edits."""
        self.record(required(image))
        await self.correct()
        await self.there.edit(image)

    def record(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        self.records[name] = required_agents.record_of(body, before=self.records.get(name))

    def required(self) -> list[RequiredInGit]:
        return [
            RequiredInGit(replace(KEY, name=name), one, one) for name, one in self.records.items()
        ]

    async def correct(self) -> None:
        """The deployer gives the DaemonSets the fields of their manifests again."""
        for name, one in self.records.items():
            containers = [{"name": "agent", "image": one.contents[0].containers[0].image}]
            spec = {"nodeSelector": None, "tolerations": [{"operator": "Exists"}]}
            template = {"spec": {**spec, "containers": containers}}
            patch = {"spec": {"template": template, "minReadySeconds": 0}}
            await self.there.people.patch(DAEMONSET, "default", name, patch, type=PatchType.MERGE)


async def commits(git: Git, chance: random.Random) -> None:
    """A commit every few minutes; every third one is bad, and reverted."""
    for number in range(100):
        await asyncio.sleep(chance.uniform(100, 400))
        await git.apply("bad" if number % 3 == 2 else f"agent:{number}")
        if number % 3 == 2:
            await asyncio.sleep(60)
            await git.apply(f"agent:{number - 1}")


EDITS: tuple[dict[str, Any], ...] = (
    {"nodeSelector": {"no": "where"}},
    {"tolerations": []},
)


async def tenant(git: Git, chance: random.Random) -> None:
    """Who may write DaemonSets edits an agent every few minutes, and has one that he declares to be
    required. The deployer corrects the edits, late.
    """
    people, mine = git.there.people, required("bad", "mine")
    await people.create(DAEMONSET, mine)
    while True:
        await asyncio.sleep(chance.uniform(60, 240))
        patch = {"spec": {"template": {"spec": chance.choice(EDITS)}}}
        name = chance.choice(AGENTS)
        await people.patch(DAEMONSET, "default", name, patch, type=PatchType.MERGE)
        await asyncio.sleep(chance.uniform(5, 30))
        await git.correct()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_no_workload_starts_without_its_agents_and_each_well_node_is_released_at_once(
    seed: int,
) -> None:
    count = JOINING // 10 if profiles.FAST else JOINING
    chance, watcher = random.Random(seed), Watcher()
    flaws = tuple(
        simulator.PodFault(image, simulator.Trouble.NEVER_READY, FAILS)
        for image in ("agent:*", "cni:1")
    )
    flaws += (simulator.PodFault("bad", simulator.Trouble.NEVER_PULLED),)
    behaviour = simulator.Behaviour(pull=8, start=4, jitter=2.0, faults=flaws)
    async with set_up([], required(), behaviour, latency=0.01) as there:
        git = Git(there)
        for body in (required(), required("cni:1", "cni")):
            git.record(body)
        await there.people.create(DAEMONSET, required("cni:1", "cni"))
        service = there.cluster.client("service")
        follow = [
            asyncio.create_task(watcher.follow_pods(there.people)),
            asyncio.create_task(watcher.follow_nodes(there.people)),
            asyncio.create_task(commits(git, chance)),
            asyncio.create_task(tenant(git, random.Random(seed + 100))),
        ]
        there.begin(Powers.FULL)
        startup = begin(
            there, StartupTaintPolicy(), Powers.PACE, service, required=git.required
        ).startup_taints
        await autoscale(there, count, chance)
        follow.pop().cancel()
        await git.correct()
        await asyncio.sleep(120)
        judge(watcher, startup, service, count)
        for task in follow:
            task.cancel()


def judge(watcher: Watcher, startup: StartupTaints, service: simulator.Client, count: int) -> None:
    assert watcher.wrong == []
    assert watcher.workloads > 0.5 * count
    late = {
        name: watcher.released_at[name] - at
        for name, at in watcher.complete_at.items()
        if name in watcher.released_at and watcher.released_at[name] - at > 1.0
    }
    assert late == {}
    stuck = {name for name in watcher.complete_at if name in watcher.nodes} - {*watcher.released_at}
    assert stuck == set()
    assert all(name.endswith("7") for name in startup.waits)
    assert service.count.of("patch", "nodes") <= 1.1 * count
