"""The service of a large cluster while its nodes and pods change: memory, CPU, and the time from a
push to the changed DaemonSet, without that of Git; the commands and the page of the same cluster.

python -m benchmarks large_changes; the cluster is that of `large`, with its variables. Half of the
nodes are replaced at the highest rate; the reaction is that of a minute at the rate of an hour.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import cluster_objects, figures, processes
from benchmarks.large import FLEET, filled
from benchmarks.running_service import PROGRAM, RunningService
from benchmarks.simulated_api import SimulatedApi
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Body
from gitops_ds.testing.simulator.server import Server
from tests import gitservers

REACTION = 5.0  # seconds beyond Git, at most
ANSWER = 1.0  # seconds of a page, at most
GROWTH = 1.25  # memory at the peak of each change, as a share of that at rest
FASTEST = 1_000.0  # events a second
REPLACED_IN = 3_600.0  # seconds in which half of the nodes are replaced
HISTORY = 200_000  # changes of a kind that the simulated cluster keeps
CHANGED_PODS = 10_000


@dataclass
class Scene:
    """The service and its cluster; each commit changes another agent."""

    service: RunningService
    api: SimulatedApi
    server: Server
    upstream: gitservers.Upstream
    within: list[bool] = field(default_factory=list)
    commits: int = 0

    async def during(
        self, what: str, changes: AsyncIterator[None], rate: float = FASTEST, *, reacts: bool = True
    ) -> None:
        """Prints memory and CPU of the service during the changes, and its reaction to a commit."""
        processes.reset_peak(self.service.process.pid)
        rest, (cpu, _), began = self.service.memory(), self.service.cpu(), time.perf_counter()
        reaction = asyncio.create_task(self._reaction()) if reacts else None
        events = 0
        async for _ in changes:
            events += 1
            await asyncio.sleep(max(began + events / rate - time.perf_counter(), 0.0))
        seconds = time.perf_counter() - began
        beyond = await reaction if reaction else None
        await asyncio.to_thread(processes.idle, self.service.process.pid)
        used, peak = self.service.cpu()[0] - cpu, self.service.memory("VmHWM")
        print(f"{what}: {events} events in {seconds:.0f} s, CPU of the service {used:.1f} s")
        self.bounded(f"{what}: memory at its peak", peak, "MiB", rest * GROWTH)
        if beyond is not None:
            self.bounded(f"{what}: a commit, beyond Git", beyond, "s", REACTION)

    def bounded(self, what: str, value: float, unit: str, bound: float) -> None:
        self.within.append(figures.bounded(what, value, unit, round(bound, 2)))

    async def _reaction(self) -> float:
        """Seconds from a push to the changed DaemonSet, without those of requests to Git."""
        name = f"agent-{self.commits:04d}"
        text = FLEET.files[f"{name}.yaml"].replace(":1.0.", ":1.1.")
        commit = await asyncio.to_thread(self.upstream.commit, {f"{name}.yaml": text})
        self.commits += 1
        git = await asyncio.to_thread(self.service.git)
        before = self.server.store.get(DAEMONSET, "default", name)
        began = time.perf_counter()
        await asyncio.to_thread(self.service.push, commit)
        while self.server.store.get(DAEMONSET, "default", name) is before:
            await asyncio.sleep(0.02)
        seconds = time.perf_counter() - began
        return seconds - (await asyncio.to_thread(self.service.git) - git)

    async def heartbeats(self) -> AsyncIterator[None]:
        """Those of five minutes."""
        for body in self.server.store.all(NODE):
            self.server.store.put(NODE, _beaten(body))
            yield

    async def changed_pods(self) -> AsyncIterator[None]:
        """Each becomes unready, and then ready again."""
        pods = self.server.store.all(POD)
        chosen = pods[:: max(len(pods) // CHANGED_PODS, 1)][:CHANGED_PODS]
        for status in ("False", "True"):
            for body in chosen:
                self.server.store.put(POD, _with_readiness(body, status))
                yield

    async def replaced_nodes(self, names: Sequence[str]) -> AsyncIterator[None]:
        """These nodes leave with their pods, and others join with theirs."""
        store, by_node = self.server.store, dict[str, list[Body]]()
        for pod in store.all(POD):
            by_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
        for old in names:
            name, node = f"{old}-r", store.get(NODE, "", old)
            assert node is not None
            leaving = by_node[old]
            for pod in leaving:
                store.remove(POD, pod)
                yield
            store.remove(NODE, node)
            store.put(NODE, _named(node, name))
            yield
            for pod in leaving:
                copy = _named(pod, f"{pod['metadata']['name']}-r")
                store.put(POD, {**copy, "spec": {**pod["spec"], "nodeName": name}})
                yield

    async def broken_watches(self) -> AsyncIterator[None]:
        """The connections of all watches end, and the cluster continues them."""
        self.api.break_watches()
        yield

    async def lost_history(self) -> AsyncIterator[None]:
        """The connections of all watches end, and the cluster cannot continue them."""
        self.server.store.compact()
        self.api.break_watches()
        yield


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        within = asyncio.run(_measure(Path(folder)))
    if not all(within):
        raise SystemExit(1)


async def _measure(folder: Path) -> list[bool]:
    async with filled(folder, FLEET, HISTORY) as made:
        with made.service() as service:
            await asyncio.to_thread(service.ready)
            await asyncio.to_thread(processes.idle, service.process.pid)
            print(f"at rest: {service.memory():.0f} MiB", flush=True)
            scene = Scene(service, made.api, made.api.cluster.server, made.upstream)
            await scene.during("heartbeats", scene.heartbeats())
            await scene.during("changed pods", scene.changed_pods())
            await scene.during("broken watches", scene.broken_watches())
            await scene.during("lost history", scene.lost_history())
            half = [cluster_objects.node_name(number) for number in range(0, FLEET.nodes, 2)]
            some = len(half) // 60
            rate = len(half) * 2 * (FLEET.agents + 1) / REPLACED_IN
            await scene.during("nodes of a minute", scene.replaced_nodes(half[:some]), rate)
            rest = scene.replaced_nodes(half[some:])
            await scene.during("half of the nodes", rest, reacts=False)
            await asyncio.to_thread(_answers, scene, made.kubeconfig)
            return scene.within


def _answers(scene: Scene, kubeconfig: Path) -> None:
    """The commands of a user, and the page of the service."""
    cache = kubeconfig.parent / "cache"
    for words in ("get", "get nodes", "get agent-0001", "status agent-0001"):
        command: list[str | Path] = [PROGRAM, *words.split(), "--kubeconfig", kubeconfig]
        cost = processes.cost(command, cache)
        print(f"{words}: {cost.wall:.1f} s, {cost.cpu:.1f} s of CPU", flush=True)
    for path in ("/", "/agents/default/agent-0001"):
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{scene.service.port}{path}") as reply:
            reply.read()
        scene.bounded(f"page {path}", time.perf_counter() - began, "s", ANSWER)


def _beaten(node: Body) -> dict[str, Any]:
    condition = {**node["status"]["conditions"][0], "lastHeartbeatTime": cluster_objects.now()}
    return {**node, "status": {**node["status"], "conditions": [condition]}}


def _with_readiness(pod: Body, status: str) -> dict[str, Any]:
    now = cluster_objects.now()
    conditions = [
        {**one, "status": status, "lastTransitionTime": now} if one["type"] == "Ready" else one
        for one in pod["status"]["conditions"]
    ]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}


def _named(body: Body, name: str) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "name": name, "uid": str(uuid.uuid4())}}
