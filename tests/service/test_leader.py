"""Two replicas on a real API server: when the leader fails during a rollout, the other
one continues, and the old one writes nothing.

What was written, by whom and when, is read from the API server's audit log.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import DAEMONSET, LEASE, POD
from gitops_ds.kube.client import config, rest
from tests import controlplane
from tests.plan.world import daemonset
from tests.service.test_killed_rollout import Watcher, image
from tests.service.test_service import PROGRAM
from tests.stopping import asked_to_stop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("leader"),
]
NODES, BUDGET = 60, 6
SPACE = "leading"
_tags = itertools.count(2)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    options = controlplane.Wanted(
        nodes=NODES, daemonset_controller=False, pod_ready_milliseconds=1000, audit=True
    )
    made = controlplane.ControlPlane(tmp_path_factory.mktemp("plane"), options)
    try:
        made.start()
        made.kubectl("create", "namespace", SPACE)
        for name in ("a", "b"):
            made.kubectl("-n", SPACE, "create", "serviceaccount", name)
            made.kubectl(
                "create",
                "clusterrolebinding",
                name,
                "--clusterrole=cluster-admin",
                f"--serviceaccount={SPACE}:{name}",
            )
        yield made
    finally:
        made.stop()


@dataclass
class Replica:
    """The installed program with an account of its own."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def count_in_log(self, words: str) -> int:
        return self.log.read_text().count(words)

    @property
    def me(self) -> str:
        return self.log.read_text().partition(" as ")[2].partition("\n")[0]


def start(plane: controlplane.ControlPlane, directory: Path, name: str) -> Replica:
    config = json.loads(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "token": plane.kubectl("-n", SPACE, "create", "token", name).strip()
    }
    number = len(list(directory.glob(f"{name}*.kubeconfig")))
    kubeconfig, settings, log = (
        directory / f"{name}{number}.{end}" for end in ("kubeconfig", "yaml", "log")
    )
    kubeconfig.write_text(json.dumps(config))
    cluster = {"kubeconfig": str(kubeconfig), "namespace": SPACE}
    settings.write_text(
        json.dumps(
            {"cluster": cluster, "controller": {"powers": "full"}, "election": {"enabled": True}}
        )
    )
    with log.open("wb") as stream:
        process = subprocess.Popen(
            (PROGRAM, "run", "--settings", str(settings)), stderr=stream, stdout=stream
        )
    return Replica(name, process, log)


@dataclass
class Scene:
    """A running rollout, its leader and its standby."""

    plane: controlplane.ControlPlane
    cluster: rest.HttpCluster
    watcher: Watcher
    leader: Replica
    other: Replica
    tag: int
    began: float

    async def until(self, holds: Any, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert all(
                one.process.poll() in (None, 0, -signal.SIGKILL)
                for one in (self.leader, self.other)
            ), self.leader.log.read_text()
            assert time.monotonic() < deadline, (
                self.leader.log.read_text()[-1500:],
                self.other.log.read_text()[-1500:],
            )
            await asyncio.sleep(0.02)

    async def ends_well(self) -> None:
        await self.until(
            lambda: self.watcher.running(image(self.tag)) == NODES == len(self.watcher.pods)
        )
        assert not self.watcher.wrong, self.watcher.wrong[:5]

    def writes(self, replica: Replica, since: float = 0.0) -> list[float]:
        """When the replica sent a write, of anything but leases; seconds since 1970. Reviews, such
        as that of the own account, are created, and write nothing.
        """
        user, found = f"system:serviceaccount:{SPACE}:{replica.name}", []
        for line in self.plane.audit_log.read_text().splitlines():
            if user not in line:
                continue
            entry = json.loads(line)
            if entry["user"]["username"] == user and entry["verb"] not in ("get", "list", "watch"):
                at = datetime.datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
                resource = entry["objectRef"]["resource"]
                is_write = resource != "leases" and not resource.endswith("reviews")
                if is_write and at > max(since, self.began):
                    found.append(at)
        return sorted(found)

    async def first_write(self, replica: Replica, since: float) -> float:
        """How many seconds later it wrote."""
        await self.until(lambda: self.writes(replica, since))
        return self.writes(replica, since)[0] - since

    async def lease_taken(self) -> float:
        """The acquire time in the lease; seconds since 1970."""
        lease = await self.cluster.get(LEASE, SPACE, "gitops-ds")
        return datetime.datetime.fromisoformat(lease["spec"]["acquireTime"]).timestamp()


@contextlib.asynccontextmanager
async def rolling(plane: controlplane.ControlPlane, directory: Path) -> AsyncIterator[Scene]:
    """Two replicas, one of which leads a rollout of which a third is done."""
    watcher, tag, began = Watcher(NODES, BUDGET), next(_tags), time.time()
    replicas = [start(plane, directory, name) for name in ("a", "b")]
    async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
        body = daemonset("agent", image(1), SPACE)
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": BUDGET}}
        await cluster.create(
            DAEMONSET, {**body, "spec": {**body["spec"], "updateStrategy": rolling}}
        )
        following = asyncio.create_task(watcher.follow(cluster))
        scene = Scene(plane, cluster, watcher, replicas[0], replicas[1], tag, began)
        try:
            await scene.until(lambda: watcher.running(image(1)) == NODES)
            await scene.until(
                lambda: any(replica.count_in_log("on standby: ") for replica in replicas)
            )
            if replicas[0].count_in_log("on standby: "):
                scene.leader, scene.other = replicas[1], replicas[0]
            containers = [{"name": "agent", "image": image(tag)}]
            await cluster.patch(
                DAEMONSET,
                SPACE,
                "agent",
                {"spec": {"template": {"spec": {"containers": containers}}}},
            )
            await scene.until(lambda: watcher.running(image(tag)) >= NODES // 3)
            yield scene
        finally:
            for replica in replicas:
                replica.process.kill()
                replica.process.wait()
            following.cancel()
            await cluster.delete(DAEMONSET, SPACE, "agent")
            with contextlib.suppress(errors.NotFound):
                # As its holder leaves it; the first replica after a deletion would wait for a whole
                # duration.
                await cluster.patch(
                    LEASE,
                    SPACE,
                    "gitops-ds",
                    {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}},
                )
            while (await cluster.list(POD)).items:  # the garbage collector takes them
                await asyncio.sleep(0.1)


def play(
    script: Callable[[Scene], Awaitable[None]], plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    async def main() -> None:
        async with rolling(plane, tmp_path) as scene:
            await script(scene)

    asyncio.run(main())


async def test_a_leader_that_is_killed_is_followed(
    scene: Scene, /, plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    died = time.time()
    scene.leader.process.kill()
    assert await scene.first_write(scene.other, died) < 15
    await scene.ends_well()
    assert scene.watcher.running(image(scene.tag)) == NODES


async def test_a_paused_leader_writes_nothing_when_it_resumes(
    scene: Scene, /, plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    scene.leader.process.send_signal(signal.SIGSTOP)
    stopped = time.time()
    assert await scene.first_write(scene.other, stopped) < 15
    scene.leader.process.send_signal(signal.SIGCONT)  # still in mid-rollout
    await scene.until(lambda: scene.leader.count_in_log("on standby: "))
    await scene.ends_well()
    assert scene.writes(scene.leader, await scene.lease_taken()) == []
    assert scene.leader.count_in_log("lost leadership") == 1
    assert scene.leader.process.poll() is None


async def test_a_leader_that_is_stopped_releases_the_lease(
    scene: Scene, /, plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    stopped_at = time.time()
    ending = asyncio.create_task(
        asyncio.to_thread(asked_to_stop, scene.leader.process, scene.leader.log)
    )
    assert await scene.first_write(scene.other, stopped_at) < 3
    assert await ending == 0
    assert max(scene.writes(scene.leader), default=0) < min(scene.writes(scene.other))
    await scene.ends_well()


async def test_a_leader_whose_lease_is_stolen_stops(
    scene: Scene, /, plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    await scene.cluster.patch(LEASE, SPACE, "gitops-ds", {"spec": {"holderIdentity": "a-thief"}})
    await scene.until(lambda: scene.leader.count_in_log("a-thief holds it"))
    stopped = time.time()
    await scene.until(
        lambda: sum(one.count_in_log("became leader") for one in (scene.leader, scene.other)) >= 2
    )
    led = await scene.lease_taken()
    # Writes that were sent before arrive late on a loaded machine; the lease is free after 15 s.
    arrived = stopped + 5
    for replica in (scene.leader, scene.other):
        assert not [at for at in scene.writes(replica, arrived) if at < led]
    await scene.ends_well()


async def test_a_leader_whose_lease_is_deleted_creates_it_again_and_continues(
    scene: Scene, /, plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    await scene.cluster.delete(LEASE, SPACE, "gitops-ds")
    await scene.ends_well()
    assert (await scene.cluster.get(LEASE, SPACE, "gitops-ds"))["spec"][
        "holderIdentity"
    ] == scene.leader.me
    assert scene.writes(scene.other) == []
