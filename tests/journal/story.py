"""A story with everything in it that a controller meets, as the records of its turns."""

from __future__ import annotations

import asyncio

from gitops_ds import simulator
from gitops_ds.controller.powers import Powers
from gitops_ds.model.cluster import PatchType
from gitops_ds.model.events.base import Decided
from gitops_ds.model.objects import DAEMONSET, NODE, POD
from tests.daemonset import world
from tests.simulator.setup import Setup, daemonset, play, set_up


def events() -> list[Decided]:
    """Rollouts with and without surge, one that fails and is undone, failed pods, nodes that join
    and leave, and two restarts.
    """
    records: list[Decided] = []

    async def scene() -> None:
        async with set_up(
            4, daemonset(minReadySeconds=3, updateStrategy=world.rolling("50%"))
        ) as there:
            await play_on(there)
            records.extend(record for record in there.records if isinstance(record, Decided))

    play(scene)
    return records


async def play_on(there: Setup, *, shadowed: bool = False) -> None:
    """The story; shadowed by another gitops-ds that only observes."""

    def begin() -> None:
        there.begin()
        if shadowed:
            there.begin(Powers.OBSERVE)

    begin()
    await asyncio.sleep(20)
    await there.edit("agent:2")
    await asyncio.sleep(4)
    await there.kill()
    there.cluster.add_nodes([simulator.NodeSpec("late")])
    begin()
    await asyncio.sleep(40)
    await _fail(there, "node-1")
    await asyncio.sleep(5)
    await _fail(there, "node-1")
    await asyncio.sleep(30)
    await there.edit("bad")
    await asyncio.sleep(20)
    await there.edit("agent:2")
    await asyncio.sleep(40)
    strategy = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}}}
    await there.people.patch(DAEMONSET, "default", "agent", strategy, type=PatchType.MERGE)
    await there.edit("agent:3")
    await asyncio.sleep(6)
    await there.kill()
    taint = {"spec": {"taints": [{"key": "drained", "effect": "NoExecute"}]}}
    await there.people.patch(NODE, "", "node-2", taint, type=PatchType.MERGE)
    await there.people.delete(NODE, "", "node-3")
    begin()
    await asyncio.sleep(400)


async def _fail(there: Setup, node: str) -> None:
    for pod in (await there.people.list(POD)).items:
        if pod["spec"].get("nodeName") == node:
            await there.people.patch(
                POD,
                "default",
                pod["metadata"]["name"],
                {"status": {"phase": "Failed"}},
                subresource="status",
            )
