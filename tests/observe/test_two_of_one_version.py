"""Our controller compared with itself, in virtual time: from the watches to the events."""

from __future__ import annotations

import asyncio

from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.base import Compared, Decided, Differed
from gitops_ds.core.objects import DAEMONSET, NODE, POD
from gitops_ds.testing import simulator
from tests.daemonset import world
from tests.simulator.setup import Setup, daemonset, set_up


def compared(there: Setup) -> list[Compared]:
    return [record for record in there.records if isinstance(record, Compared)]


def differed(there: Setup) -> list[Differed]:
    return [record for record in there.records if isinstance(record, Differed)]


async def play_story(there: Setup) -> None:
    """Rollouts with and without surge, one that fails and is undone, failed pods, nodes that join
    and leave, and two restarts; beside another gitops-ds that only observes.
    """

    def begin() -> None:
        there.begin()
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


async def test_two_of_the_same_version_agree_through_a_whole_story() -> None:
    async with set_up(
        4, daemonset(minReadySeconds=3, updateStrategy=world.rolling("50%"))
    ) as there:
        await play_story(there)
        assert differed(there) == []
        assert sum(record.replaced for record in compared(there)) >= 4
        assert all(record.differences == 0 for record in compared(there))


async def test_a_pod_that_failed_and_was_deleted_within_an_interval_is_known_to_have_failed() -> (
    None
):
    async with set_up(3) as there:
        there.begin()
        there.begin(Powers.OBSERVE)
        await asyncio.sleep(20)
        name = next(iter((await there.people.list(POD)).items))["metadata"]["name"]
        # the first brings a look, and for 5 ms no other
        for status in ({"message": "soon"}, {"phase": "Failed"}):
            await there.people.patch(POD, "default", name, {"status": status}, subresource="status")
        await there.people.delete(POD, "default", name)
        await asyncio.sleep(20)
        assert [sum(record.deleted.values()) for record in compared(there)[1:]] == [1]
        assert not any(record.elsewhere for record in compared(there))


async def test_an_action_that_is_missing_is_reported_after_two_minutes_and_once() -> None:
    async with set_up(3) as there:
        there.begin(Powers.OBSERVE)
        await asyncio.sleep(110)
        assert differed(there) == []
        await asyncio.sleep(1000)
        (difference,) = differed(there)
        assert difference.ours.startswith(
            "pods on node-0, node-1, node-2, and CreateRevision agent-"
        )
        assert difference.theirs == "nothing for 120 s"


async def test_a_controller_that_starts_late_has_an_interval_with_differences() -> None:
    async with set_up(3) as there:
        there.begin(Powers.OBSERVE)
        await asyncio.sleep(200)
        there.begin(Powers.FULL)
        await asyncio.sleep(60)
        (comparison,) = compared(there)
        assert (comparison.differences, comparison.created) == (
            1,
            {"node-0": 1, "node-1": 1, "node-2": 1},
        )


async def test_under_observe_time_alone_brings_a_turn() -> None:
    """Pods are ready, and nothing happens any more until they have been so for a minute."""
    async with set_up(3) as there:
        there.begin(Powers.FULL)
        await asyncio.sleep(20)
        await there.kill()
        await there.people.patch(
            DAEMONSET,
            "default",
            "agent",
            {"spec": {"minReadySeconds": 60}},
            type=PatchType.MERGE,
        )
        there.records.clear()
        there.begin(Powers.OBSERVE)
        await asyncio.sleep(100)
        turns = [record for record in there.records if isinstance(record, Decided)]
        waiting, last = turns[0], turns[-1]
        assert waiting.decision.wake_after is not None
        assert abs(last.at - waiting.at - waiting.decision.wake_after) < 0.1
        assert (waiting.decision.status is not None, last.decision.status is not None) == (
            True,
            True,
        )
