"""A controller that is killed thirty times in the middle of rollouts over 100 nodes: no pod too
many, none lost, always done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_ds.core.cluster import EVERYTHING, EventType
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, POD
from gitops_ds.kube.apimachinery import pods
from gitops_ds.kube.client import config, rest
from tests import controlplane
from tests.plan.world import daemonset
from tests.service.test_service import running

NODES, KILLS = 100, 30
BUDGET = 10  # 10 %
PATIENCE = 120.0  # seconds
SEED = 4


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


class Watcher:
    """Follows every pod, and judges after each event."""

    def __init__(self, nodes: int, budget: int) -> None:
        self.nodes, self.budget = nodes, budget
        self.pods: dict[str, Pod] = {}
        self.images: dict[str, str] = {}
        self.wrong: list[str] = []
        self.was_whole = False
        self.news = asyncio.Event()

    async def follow(self, cluster: rest.HttpCluster) -> None:
        version = (await cluster.list(POD)).version
        while True:
            async for event in cluster.watch(POD, version, EVERYTHING):
                version = event.version
                if event.type is EventType.BOOKMARK:
                    continue
                pod = pods.pod_of(event.object)
                self.pods[pod.uid] = pod
                self.images[pod.uid] = event.object["spec"]["containers"][0]["image"]
                if event.type is EventType.DELETED:
                    del self.pods[pod.uid]
                self.judge()
                self.news.set()

    def judge(self) -> None:
        live = [pod for pod in self.pods.values() if not pod.terminating]
        names = [pod.node for pod in live]
        if len(names) != len(set(names)):
            self.wrong.append(
                f"two pods on {sorted({name for name in names if names.count(name) > 1})}"
            )
        available = sum(pod.ready for pod in live)
        self.was_whole |= available == self.nodes
        if self.was_whole and available < self.nodes - self.budget:
            self.wrong.append(f"{available} of {self.nodes} are available")

    def running(self, expected: str) -> int:
        return sum(
            pod.ready and not pod.terminating and self.images[uid] == expected
            for uid, pod in self.pods.items()
        )

    async def until(self, holds: Callable[[], bool], log: Path) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise AssertionError(f"no progress: {log.read_text()[-3000:]}") from None


@pytest.mark.slow
@pytest.mark.controlplane
def test_thirty_kills_in_the_middle_cost_nothing(tmp_path: Path) -> None:
    options = controlplane.Wanted(
        nodes=NODES, daemonset_controller=False, pod_ready_milliseconds=100
    )
    plane = controlplane.ControlPlane(tmp_path / "plane", options)
    try:
        asyncio.run(_lives(plane.start(), tmp_path))
    finally:
        plane.stop()


async def _lives(plane: controlplane.ControlPlane, directory: Path) -> None:
    chance, watcher, kills, tag = random.Random(SEED), Watcher(NODES, BUDGET), 0, 1
    async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
        following = asyncio.create_task(watcher.follow(cluster))
        body = daemonset("agent", image(tag), "default")
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
        await cluster.create(
            DAEMONSET, {**body, "spec": {**body["spec"], "updateStrategy": rolling}}
        )
        while kills < KILLS or watcher.running(image(tag)) < NODES:
            if watcher.running(image(tag)) == NODES:
                tag += 1
                await cluster.patch(DAEMONSET, "default", "agent", _image(tag))
            done = watcher.running(image(tag))
            # The next kill is after some more pods; the last run continues to the end.
            enough = min(NODES, done + chance.randrange(NODES // 4)) if kills < KILLS else NODES
            # ends with kill -9
            with running(directory, plane, "--powers", "full") as (process, log):
                await watcher.until(lambda: watcher.running(image(tag)) >= enough, log)  # noqa: B023  waited for here
                assert process.poll() is None, log.read_text()
            kills += 1
        numbers = sorted(
            item["revision"] for item in (await cluster.list(CONTROLLER_REVISION)).items
        )
        following.cancel()
    assert not watcher.wrong, watcher.wrong[:5]
    assert {watcher.images[uid] for uid in watcher.pods} == {image(tag)}
    assert len(watcher.pods) == NODES
    assert numbers == list(range(1, tag + 1))


def _image(tag: int) -> dict[str, object]:
    containers = [{"name": "agent", "image": image(tag)}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}
