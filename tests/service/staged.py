"""A fleet with a staged rollout on a real control plane: the repository, the nodes in pools, and a
watch with assertions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.cluster import EVERYTHING, EventType
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.objects import POD
from gitops_ds.kube.apimachinery import pods
from gitops_ds.kube.client import config, rest
from tests import controlplane
from tests.gitservers import Upstream
from tests.plan.world import daemonset
from tests.service.test_service import running

MARKS = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("staged"),
]
POOLS = ("general", "batch", "gpu")
CANARIES = 3
PATIENCE = 600.0  # seconds
STATES = "service-test"


@dataclass(frozen=True)
class Soaks:
    """The soak of the canary and of each later stage in seconds."""

    canary: int
    others: int = 1


def policy(soaks: Soaks, at_risk: str = "40%") -> str:
    """Canary, then the pools batch, general and gpu; the last one is what no stage names."""
    stages: list[dict[str, Any]] = [
        {"name": "canary", "nodes": {"count": CANARIES}, "soak": f"{soaks.canary}s"},
        *(
            {
                "name": pool,
                "where": {"pool": pool},
                "soak": f"{soaks.others}s",
                "pace": {"start": 4, "max": "50%"},
            }
            for pool in ("batch", "general")
        ),
        {"name": "rest", "soak": f"{soaks.others}s", "pace": {"start": 4, "max": "50%"}},
    ]
    document = {
        "stages": stages,
        "limits": {"atRisk": {"cluster": at_risk}},
        "onFailure": {"revert": {"how": "none"}},
    }
    return json.dumps(document)


ORDER = ("batch", "general", "gpu")  # the pools in the order of the stages after the canary


def pool_of(number: int) -> str:
    return POOLS[number % len(POOLS)]


def name_of(number: int) -> str:
    return f"node-{number:03d}"


def nodes(numbers: range) -> Iterator[dict[str, Any]]:
    """Nodes for kwok, divided evenly between the pools."""
    return (controlplane.node(name_of(number), {"pool": pool_of(number)}) for number in numbers)


def image(tag: str) -> str:
    return f"registry.example.com/agent:{tag}"


def manifest(tag: str) -> dict[str, Any]:
    return daemonset("agent", image(tag), "default")


def files(tag: str, rollout: str) -> dict[str, str]:
    """A repository with one agent, its policy, and a cluster with the pools."""
    match = {pool: {"match": [{"key": "pool", "in": [pool]}], "nodes": 10} for pool in POOLS}
    return {
        "gitops-ds.yaml": "version: v1\n",
        "clusters/test.yaml": json.dumps({"pools": match}),
        "agents/agent/daemonset.json": json.dumps(manifest(tag), indent=2),
        "agents/agent/rollout.yaml": rollout,
    }


@contextlib.contextmanager
def plane_with(
    directory: Path,
    number: int,
    pod_delete_milliseconds: int = controlplane.POD_DELETE_MILLISECONDS,
) -> Iterator[controlplane.ControlPlane]:
    """A control plane with the built-in DaemonSet controller and nodes in three pools."""
    options = controlplane.Wanted(
        pod_ready_milliseconds=100, pod_delete_milliseconds=pod_delete_milliseconds
    )
    plane = controlplane.ControlPlane(directory / "plane", options)
    try:
        plane.start()
        plane.add_nodes(nodes(range(number)))
        yield plane
    finally:
        plane.stop()


@dataclass
class PodWatch:
    """Every pod by one watch, judged after each event."""

    cluster: rest.HttpCluster
    soaks: Soaks
    pods: dict[str, tuple[str, Pod]] = field(default_factory=dict)  # by UID, with the tag
    # all UIDs ever, with the tag and the node
    created: dict[str, tuple[str, str]] = field(default_factory=dict)
    canaries: list[str] = field(default_factory=list)
    target: str = ""
    wrong: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        listed = await self.cluster.list(POD)
        for body in listed.items:
            self._note(body)
        version = listed.version
        while True:
            async for event in self.cluster.watch(POD, version, EVERYTHING):
                version = event.version
                if event.type is EventType.BOOKMARK:
                    continue
                uid = event.object["metadata"]["uid"]
                if event.type is EventType.DELETED:
                    self.pods.pop(uid, None)
                else:
                    self._note(event.object)
                self.news.set()

    def expect(self, tag: str) -> None:
        """The image of the next rollout; its first nodes are its canaries."""
        self.target, self.canaries = tag, []

    def _note(self, body: Mapping[str, Any]) -> None:
        tag = str(body["spec"]["containers"][0]["image"]).rpartition(":")[2]
        pod = pods.pod_of(body)
        self.pods[pod.uid] = tag, pod
        if pod.uid not in self.created:
            self.created[pod.uid] = tag, pod.node
            if tag == self.target:
                self._judge(pod)

    def _judge(self, pod: Pod) -> None:
        """A new pod of the target belongs to the canary, or each stage before its own is proved."""
        if pod.node in self.canaries:
            return
        if len(self.canaries) < CANARIES:
            self.canaries.append(pod.node)
            return
        stage = ORDER.index(self._pool(pod.node))
        now = time.time()
        ready = {
            other.node: now - other.ready_since
            for tag, other in self.pods.values()
            if tag == self.target and other.ready and other.ready_since is not None
        }
        for node in self._nodes():
            if node in self.canaries:
                soak = self.soaks.canary
            elif ORDER.index(self._pool(node)) < stage:
                soak = self.soaks.others
            else:
                continue
            if ready.get(node, -1.0) < soak:
                self.wrong.append(f"{pod.node} is updated before {node} is proved")

    def _pool(self, node: str) -> str:
        return pool_of(int(node.rpartition("-")[2]))

    def _nodes(self) -> set[str]:
        return {pod.node for _, pod in self.pods.values()}

    def on(self, tag: str) -> set[str]:
        """The nodes with a ready pod of that image that is not ending."""
        return {
            pod.node
            for one, pod in self.pods.values()
            if one == tag and pod.ready and not pod.terminating
        }

    def uids(self, tag: str) -> set[str]:
        """The pods of that image that are not ending."""
        return {uid for uid, (one, pod) in self.pods.items() if one == tag and not pod.terminating}

    async def until(self, holds: Callable[[], bool], log: Path | None = None) -> None:
        """Returns after the event that makes the condition true for the pods."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    assert not self.wrong, self.wrong[:5]
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            state = sorted((pod.node, tag, pod.ready, pod.bound) for tag, pod in self.pods.values())
            text = log.read_text()[-5000:] if log is not None else ""
            raise AssertionError(f"{state}\n{text}") from None

    async def quiet(self, seconds: float) -> None:
        """Asserts that no pod is created in a number of seconds."""
        before = set(self.created)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while before == set(self.created):
                    self.news.clear()
                    await self.news.wait()
        assert before == set(self.created), "pods were created"


@contextlib.asynccontextmanager
async def watching(plane: controlplane.ControlPlane, soaks: Soaks) -> AsyncIterator[PodWatch]:
    """A watch of all pods of the plane."""
    async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
        watch = PodWatch(cluster, soaks)
        following = asyncio.create_task(watch.follow())
        try:
            yield watch
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


Script = Callable[[controlplane.ControlPlane, Upstream, PodWatch, Path], Awaitable[None]]


def play(
    script: Script,
    directory: Path,
    number: int,
    soaks: Soaks,
    pod_delete_milliseconds: int = controlplane.POD_DELETE_MILLISECONDS,
) -> None:
    """Runs a script beside the service, which has applied the first image on so many nodes."""
    upstream = Upstream(directory / "fleet")
    upstream.commit(files("1", policy(soaks)))

    async def main(plane: controlplane.ControlPlane, log: Path) -> None:
        async with watching(plane, soaks) as watch:
            await watch.until(lambda: len(watch.on("1")) == number, log)
            await script(plane, upstream, watch, log)

    with (
        plane_with(directory, number, pod_delete_milliseconds) as plane,
        running(directory, plane, *words(upstream)) as (process, log),
    ):
        asyncio.run(main(plane, log))
        assert process.poll() is None
        assert "Traceback" not in log.read_text()


def words(upstream: Upstream) -> tuple[str, ...]:
    """The options of a service with powers pace that follows a repository."""
    return ("-C", str(upstream.path), "--interval", "1s", "--powers", "pace")


def items(plane: controlplane.ControlPlane, plural: str) -> list[Any]:
    return plane.items("default", plural)


def agent(plane: controlplane.ControlPlane) -> Any:
    """The DaemonSet."""
    return plane.read("default", "daemonsets", "agent")


def tag_of(plane: controlplane.ControlPlane) -> str:
    """The image of the DaemonSet's template."""
    spec = agent(plane)["spec"]["template"]["spec"]
    return str(spec["containers"][0]["image"]).rpartition(":")[2]


async def until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    """Polls what no watch of the test shows."""
    deadline = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.2)
