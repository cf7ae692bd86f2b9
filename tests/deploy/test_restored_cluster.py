"""A backup of etcd is restored while the service runs: each watch notices at another time, and no
decision mixes objects of before with objects of after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import pytest

from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import POD, Resource
from gitops_ds.daemonset.cache import WATCHED
from gitops_ds.kube.client.informer import LONGEST_SILENCE
from gitops_ds.testing.simulator import faults
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from gitops_ds.testing.simulator.store import Backup
from tests.deploy.rollout_scene import NODES, Scene, play

CAP = 3  # of ten nodes, as in the policy of the scene
APART = 40.0  # seconds between the first kind that is listed after the restore and the others


@dataclass
class LateLists:
    """Faults of a client: some kinds are listed only after `ends`, a time of the cluster."""

    late: frozenset[Resource] = frozenset()
    ends: float = 0.0
    deleted: list[float] = field(default_factory=list)

    def __call__(self, request: SimulatedRequest) -> RequestFault | None:
        if request.resource == POD and request.verb == "delete":
            self.deleted.append(request.now)
        is_read = request.verb in ("list", "watch")
        if is_read and request.resource in self.late and request.now < self.ends:
            return faults.failure(503)
        return None

    def most_in(self, seconds: float) -> int:
        """The largest number of deletes within that time."""
        return max(
            (sum(0 <= b - a < seconds for b in self.deleted) for a in self.deleted), default=0
        )


def runs(scene: Scene, tag: str) -> bool:
    """Whether every node runs the template of a tag."""
    return len(scene.on(tag)) == NODES


async def backup_of_a_rollout(scene: Scene, holds: Callable[[], bool]) -> Backup:
    """A backup in the rollout of `2`; later the cluster has `3` on all nodes."""
    scene.push("2")
    await scene.until(holds)
    backup = scene.cluster.server.store.backup()
    for tag in ("2", "3"):
        scene.push(tag)
        await scene.until(partial(runs, scene, tag))
        await asyncio.sleep(300)
    return backup


def restored(scene: Scene, lists: LateLists, backup: Backup, late: Iterable[Resource]) -> None:
    lists.late, lists.ends = frozenset(late), scene.cluster.server.now() + APART
    lists.deleted.clear()
    scene.cluster.restore(backup)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "powers"),
    [*((resource, Powers.PACE) for resource in WATCHED), (POD, Powers.FULL)],
    ids=lambda value: value.plural if isinstance(value, Resource) else str(value),
)
def test_no_pod_is_deleted_by_a_mix_of_two_worlds(first: Resource, powers: Powers) -> None:
    lists = LateLists()

    async def script(scene: Scene) -> None:
        backup = await backup_of_a_rollout(scene, lambda: len(scene.on("2")) == NODES)
        scene.of_deployer = lambda request: faults.failure(503)
        restored(scene, lists, backup, set(WATCHED) - {first})
        await asyncio.sleep(APART - 1)
        assert lists.deleted == []
        assert scene.controller is not None
        observer = scene.controller.observer
        assert all((seen := observer.observe(key)) and seen.unlisted for key in observer.keys)
        scene.of_deployer = faults.none
        scene.request()
        await scene.until(lambda: len(scene.on("3")) == NODES)
        assert lists.most_in(20.0) <= CAP

    play(script, powers, faults=lists)


@dataclass
class SilentWatch(LateLists):
    """The watch of pods is silent until APART before the end; then the other kinds are late."""

    def __call__(self, request: SimulatedRequest) -> RequestFault | None:
        silent_for = self.ends - APART - request.now
        if silent_for > 0:
            is_silent = request.resource == POD and request.verb == "watch"
            return faults.Silence(silent_for) if is_silent else None
        return super().__call__(request)


@pytest.mark.slow
def test_after_a_silent_watch_no_write_mixes_its_list_with_objects_of_before() -> None:
    """A restore may give the cluster higher versions, so no list shows that it happened."""
    watch = SilentWatch(frozenset(WATCHED) - {POD})

    async def script(scene: Scene) -> None:
        scene.kill()
        watch.ends = scene.cluster.server.now() + 2 * LONGEST_SILENCE
        scene.start()
        await asyncio.sleep(2 * LONGEST_SILENCE - APART + 1)
        scene.push("2")
        await asyncio.sleep(APART / 2)
        assert scene.controller is not None
        observer = scene.controller.observer
        assert all((seen := observer.observe(key)) and seen.unlisted for key in observer.keys)
        assert watch.deleted == []
        await scene.until(lambda: len(scene.on("2")) == NODES)

    play(script, faults=watch)
