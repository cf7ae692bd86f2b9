"""The plan of a service lists no pods that its watches show; they are listed while a watch may be
behind.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from gitops_ds.controller import observer
from gitops_ds.controller.observer import Observer
from gitops_ds.core.objects import DAEMONSET, POD, Resource
from gitops_ds.core.values import replace
from gitops_ds.deploy.apply import plan_draft
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.testing.simulator import virtual_time
from tests.plan import world
from tests.plan.world import NOBODY_WAITS, World, commit, snapshot
from tests.simulator.setup import set_up
from tests.status.test_agent_lists import Recorded


def watching(cluster: Any) -> tuple[Observer, asyncio.Task[None]]:
    observing = Observer(
        cluster, lambda _: None, clock=virtual_time.clock(), chance=random.Random(1).random
    )
    return observing, asyncio.create_task(observing.run())


async def test_a_plan_lists_no_pods_that_are_known_and_foresees_the_same() -> None:
    async with set_up(3) as there:
        there.begin()
        await World(there.people).apply({"agent.json": world.daemonset("mine")})
        await asyncio.sleep(60)
        observing, task = watching(there.people)
        await observing.synced.wait()
        changed = world.daemonset("mine", "registry.example.com/agent:2")
        prepared = prepare.prepare(snapshot({"agent.json": changed}, "second"))
        plans = []
        for known in (observing.known_pods, lambda _: None):
            client: Any = Recorded(there.people)
            place = replace(World(client).place, known_pods=known)
            draft = await plan_draft.draft(place, prepared.bundle, commit("second"), NOBODY_WAITS)
            plans.append((draft.plan.changes, len(client.pods)))
        task.cancel()
        (changes, known_lists), (listed, lists) = plans
        assert changes == listed
        assert [len(change.nodes.restarted) for change in changes] == [3]
        assert (known_lists, lists) == (0, 1)


class Silent:
    """A cluster whose watches of pods get nothing after a while, no bookmark either."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def watch(self, resource: Resource, *arguments: Any) -> Any:
        if resource == POD:
            await asyncio.sleep(100 * observer.UP_TO_DATE)
        async for event in self._cluster.watch(resource, *arguments):
            yield event


async def test_pods_are_not_known_while_their_watch_may_be_behind() -> None:
    async with set_up(3) as there:
        there.begin()
        await asyncio.sleep(60)
        body = daemonsets.daemonset_of(await there.people.get(DAEMONSET, "default", "agent"))
        observing, task = watching(Silent(there.people))
        assert observing.known_pods(body) is None
        await observing.synced.wait()
        assert len(observing.known_pods(body) or ()) == 3
        await asyncio.sleep(observer.UP_TO_DATE)
        assert observing.known_pods(body) is None
        task.cancel()
