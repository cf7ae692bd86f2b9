"""Permanent failures: no crash, no flood of requests, always a message with the reason, and
recovery at the end of the failure.

The bound follows from the rules of retries. A list or a watch that fails waits 0.8 s, doubled
up to 12 s, and up to twice that by chance: after a minute each of the four kinds is requested at
most five times a minute, with at most two requests each: 40. A failed reconciliation waits 5 ms,
doubled: after a minute the next one is 40 s away, and watch events and the resync cause few more.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.events import base
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NAMESPACE, POD
from gitops_ds.kube.apimachinery import daemonsets, pods, revisions
from gitops_ds.testing.simulator import faults
from gitops_ds.testing.simulator.faults import RequestFault, Silence, SimulatedRequest
from tests.daemonset import world
from tests.simulator.setup import Setup, daemonset, each, play, set_up

A_MINUTE_AT_MOST = 60
TROUBLE = (base.ActionFailed, base.StatusFailed, base.WatchFailed)


def busy() -> errors.TooManyRequests:
    error = errors.TooManyRequests(
        "too many requests, please try again later", 429, "TooManyRequests"
    )
    error.retry_after = 5.0
    return error


ANSWERS: dict[str, RequestFault] = {
    **{
        str(status): faults.failure(status)
        for status in (400, 401, 403, 404, 409, 410, 422, 500, 503, 504)
    },
    "429 with Retry-After": busy(),
    "no answer": Silence(30),
    "no answer, and it was done": Silence(10, done=True),
}
REQUESTS: dict[str, Callable[[SimulatedRequest], bool]] = {
    "everything": lambda request: True,
    "lists": lambda request: request.verb == "list",
    "watches": lambda request: request.verb == "watch",
    "writes": lambda request: request.verb not in faults.READS,
    "new pods": lambda request: request.verb == "create" and request.resource == POD,
    "deletes": lambda request: request.verb == "delete",
    "the status": lambda request: request.subresource == "status",
}


async def requests_each_minute(there: Setup, minutes: int = 10) -> list[int]:
    """The requests of each minute."""
    counts = []
    for _ in range(minutes):
        there.cluster.count.reset()
        await asyncio.sleep(60)
        counts.append(there.cluster.count.total)
    return counts


@pytest.mark.sampled
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("what", REQUESTS)
async def test_a_permanent_error_is_survived_and_reported_and_work_continues_when_it_ends(
    what: str, answer: str
) -> None:
    async with set_up(3) as there:
        there.begin()
        await asyncio.sleep(30)
        there.cluster.faults = lambda request: ANSWERS[answer] if REQUESTS[what](request) else None
        there.cluster.cut_watches()
        await there.edit("agent:2")
        await asyncio.sleep(60)
        assert max(await requests_each_minute(there)) <= A_MINUTE_AT_MOST
        troubles = [r for r in there.records if isinstance(r, TROUBLE)]
        assert troubles or (what, answer) in SILENT
        there.cluster.faults = faults.none
        await asyncio.sleep(400)
        assert await there.pods() == each(3, "agent:2")
        status = await there.status()
        assert (
            status["updatedNumberScheduled"],
            status["numberAvailable"],
            status["observedGeneration"],
        ) == (3, 3, 2)


SILENT = {
    ("deletes", "404"),  # nothing is left to do
    # a DaemonSet that is not found has no status to write: it is gone, as its watch will show
    ("the status", "404"),
    ("watches", "no answer"),  # a silent watch is one of a quiet cluster
    ("watches", "no answer, and it was done"),
}


@pytest.mark.slow
async def test_streams_that_break_again_and_again_are_opened_less_and_less_often() -> None:
    async with set_up(3) as there:
        there.begin()

        async def break_them() -> None:
            while True:
                await asyncio.sleep(0.6)
                patch = {
                    "metadata": {"annotations": {"now": str(asyncio.get_running_loop().time())}}
                }
                for resource, name in (
                    (DAEMONSET, "agent"),
                    (POD, next(iter(await names_of(there)), "")),
                ):
                    if name:
                        await there.people.patch(resource, "default", name, patch)
                there.cluster.cut_watches(errors.ServerFault("garbage in the stream", 500))

        breaking = asyncio.create_task(break_them())
        await asyncio.sleep(90)
        assert max(await requests_each_minute(there)) <= A_MINUTE_AT_MOST
        assert any(
            isinstance(r, base.WatchFailed) and "garbage" in str(r.error) for r in there.records
        )
        breaking.cancel()
        await there.edit("agent:2")
        await asyncio.sleep(200)
        assert await there.pods() == each(3, "agent:2")


async def names_of(there: Setup) -> list[str]:
    return [body["metadata"]["name"] for body in (await there.people.list(POD)).items]


async def test_a_namespace_that_is_ending_is_left_in_peace() -> None:
    ending = errors.Forbidden(
        "being terminated", 403, "Forbidden", ({"reason": "NamespaceTerminating"},)
    )
    async with set_up(5) as there:
        there.cluster.faults = lambda request: ending if request.verb == "create" else None
        there.begin()
        await asyncio.sleep(60)
        assert max(await requests_each_minute(there)) <= A_MINUTE_AT_MOST


async def test_the_deletion_of_a_namespace_deletes_its_objects() -> None:
    async with set_up(3) as there:
        await there.people.create(NAMESPACE, {"metadata": {"name": "agents"}})
        body = daemonset()
        body = {**body, "metadata": {**body["metadata"], "namespace": "agents"}}
        await there.people.create(DAEMONSET, body)
        there.begin()
        await asyncio.sleep(30)
        await there.people.delete(NAMESPACE, "", "agents")
        await asyncio.sleep(120)
        for resource in (DAEMONSET, CONTROLLER_REVISION, POD):
            assert {
                items["metadata"]["namespace"]
                for items in (await there.people.list(resource)).items
            } == {"default"}
        assert await there.pods() == each(3)
        assert max(await requests_each_minute(there)) <= A_MINUTE_AT_MOST


async def test_a_daemonset_that_selects_everything_is_complained_of_and_not_obeyed() -> None:
    async with set_up(3) as there:
        body = await there.people.get(DAEMONSET, "default", "agent")
        # no API server takes it
        there.cluster.server.put(DAEMONSET, body, spec={**body["spec"], "selector": {}})
        there.begin()
        await asyncio.sleep(1000)
        assert there.cluster.count.writes == 0
        complaints = [r.decision.complaint for r in there.records if isinstance(r, base.Decided)]
        assert "non-empty selector" in complaints[-1]
        there.cluster.server.put(DAEMONSET, body, spec=body["spec"])
        await asyncio.sleep(30)
        assert await there.pods() == each(3)


def test_two_daemonsets_with_one_selector_leave_each_others_pods_alone_and_agree_on_orphans() -> (
    None
):
    async def scene() -> None:
        async with set_up(3) as there:
            twin = daemonset("twin:1")
            await there.people.create(
                DAEMONSET, {**twin, "metadata": {**twin["metadata"], "name": "twin"}}
            )
            there.begin()
            await asyncio.sleep(30)
            both = {**each(3), **each(3, "twin:1")}
            assert await there.pods() == both
            name = (await names_of(there))[0]
            patch = {"metadata": {"ownerReferences": None}}
            await there.people.patch(POD, "default", name, patch, type=PatchType.MERGE)
            await asyncio.sleep(60)
            assert await there.pods() == both
            assert max(await requests_each_minute(there)) <= A_MINUTE_AT_MOST
            owners = [
                pods.controller_of(body["metadata"])
                for body in (await there.people.list(POD)).items
            ]
            assert sorted(owner.name for owner in owners if owner) == ["agent"] * 3 + ["twin"] * 3

    play(scene)


BROKEN: list[Any] = [
    {},
    {"spec": None},
    {"spec": {"template": "x"}},
    {"spec": {"template": {"spec": []}}},
    {"other": [1, 2]},
]


@pytest.mark.sampled
@pytest.mark.parametrize("owned", [True, False])
async def test_revisions_with_broken_data_do_no_harm(owned: bool) -> None:
    async with set_up(2) as there:
        live_object = daemonsets.daemonset_of(await there.people.get(DAEMONSET, "default", "agent"))
        for number, data in enumerate(BROKEN):
            body = revisions.new(live_object, number)
            metadata = {
                **body["metadata"],
                "name": f"broken-{number}",
                "labels": {"app": "agent"},
            }
            if not owned:
                del metadata["ownerReferences"]
            await there.people.create(
                CONTROLLER_REVISION, {**body, "metadata": metadata, "data": data}
            )
        there.begin()
        for image in ("agent:1", "agent:2", "agent:1"):
            await there.edit(image)
            await asyncio.sleep(60)
            assert await there.pods() == each(2, image)
        assert max(await requests_each_minute(there)) <= A_MINUTE_AT_MOST


async def test_a_broken_revision_under_the_name_of_the_next_one_is_a_collision() -> None:
    async with set_up(2) as there:
        body = daemonsets.daemonset_of(await there.people.get(DAEMONSET, "default", "agent"))
        await there.people.create(
            CONTROLLER_REVISION, {**revisions.new(body, 1), "data": {"spec": {}}}
        )
        there.begin()
        await asyncio.sleep(60)
        assert await there.pods() == each(2)
        assert (await there.status())["collisionCount"] == 1


@pytest.mark.sampled
@pytest.mark.parametrize("surge", [False, True])
async def test_a_jumping_clock_causes_no_flood_and_the_cluster_ends_in_sync(surge: bool) -> None:
    strategy = world.rolling(0, 1) if surge else world.rolling(1)
    async with set_up(4, daemonset(updateStrategy=strategy, minReadySeconds=3)) as there:
        there.begin()
        await asyncio.sleep(30)
        await there.edit("agent:2")
        for hours in (24, -24, 1, -1, 0.01, -0.01, 10_000, -10_000):
            there.skew = hours * 3600
            assert max(await requests_each_minute(there, minutes=2)) <= A_MINUTE_AT_MOST
        there.skew = 0.0
        await asyncio.sleep(700)
        assert await there.pods() == each(4, "agent:2")
        assert (await there.status())["numberAvailable"] == 4


async def test_an_action_and_a_status_write_that_both_fail_are_both_reported() -> None:
    def refused(request: SimulatedRequest) -> RequestFault | None:
        return (
            faults.failure(500)
            if REQUESTS["new pods"](request) or REQUESTS["the status"](request)
            else None
        )

    async with set_up(2) as there:
        there.cluster.faults = refused
        there.begin()
        await asyncio.sleep(5)
        assert {type(r) for r in there.records if isinstance(r, TROUBLE)} == {
            base.ActionFailed,
            base.StatusFailed,
        }


async def test_an_error_of_many_requests_keeps_the_frames_of_its_last_request_alone() -> None:
    """Else a table of errors keeps all the clusters of its tests."""
    error = faults.failure(500)
    async with set_up(1) as there:
        there.people.faults = lambda request: error
        lengths = set()
        for _ in range(3):
            with pytest.raises(errors.ServerFault):
                await there.people.list(POD)
            lengths.add(len(list(traceback.walk_tb(error.__traceback__))))
        assert len(lengths) == 1
