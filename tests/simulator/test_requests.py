"""Watches that end, history that is forgotten, faults on the way, and what is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import EventType, WatchEvent
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NAMESPACE, POD, Body
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults as simulator_faults
from tests.simulator import stage

play = stage.play


def _map(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"a": "1"},
    }


async def _all(cluster: simulator.Client, since: str) -> list[WatchEvent]:
    return [event async for event in cluster.watch(CONFIG_MAP, since)]


async def test_a_silent_watch_gets_bookmarks_and_ends_by_itself(
    cluster: simulator.SimulatedCluster, /
) -> None:
    start = (await cluster.list(CONFIG_MAP)).version
    events = await _all(cluster, start)
    assert [e.type for e in events] == [EventType.BOOKMARK] * 29
    assert {e.version for e in events} == {start}
    assert asyncio.get_running_loop().time() == 1800


async def test_a_watch_without_a_version_begins_with_the_existing_objects(
    cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.create(CONFIG_MAP, _map("a"))
    events = await _all(cluster, "")
    assert [(e.type, e.object["metadata"].get("name")) for e in events][:1] == [
        (EventType.ADDED, "a")
    ]


async def test_a_watch_from_the_future_is_silent(cluster: simulator.SimulatedCluster, /) -> None:
    async def later() -> None:
        await asyncio.sleep(10)
        await cluster.create(CONFIG_MAP, _map("a"))

    task = asyncio.create_task(later())
    assert {e.type for e in await _all(cluster, "1000000")} == {EventType.BOOKMARK}
    await task


async def test_cut_watches_end_at_once_and_only_those_of_that_client(
    cluster: simulator.SimulatedCluster, /
) -> None:
    other = cluster.client()
    loop = asyncio.get_running_loop()
    ends: dict[str, float] = {}

    async def follow(name: str, client: simulator.Client) -> None:
        await _all(client, "")
        ends[name] = loop.time()

    tasks = [
        asyncio.create_task(follow("cut", other)),
        asyncio.create_task(follow("kept", cluster)),
    ]
    await asyncio.sleep(100)
    other.cut_watches()
    await asyncio.gather(*tasks)
    assert ends == {"cut": 100, "kept": 1800}


FAULTS = [
    (400, errors.BadRequest),
    (401, errors.Unauthorized),
    (403, errors.Forbidden),
    (404, errors.NotFound),
    (409, errors.Conflict),
    (410, errors.Expired),
    (422, errors.Invalid),
    (429, errors.TooManyRequests),
    (500, errors.ServerFault),
    (503, errors.ServerFault),
]


@pytest.mark.parametrize(("status", "kind"), FAULTS)
async def test_a_fault_is_raised_and_nothing_is_changed(
    cluster: simulator.SimulatedCluster, /, status: int, kind: type[errors.ClusterError]
) -> None:
    def faults(request: simulator.SimulatedRequest) -> simulator_faults.RequestFault | None:
        return (
            simulator_faults.failure(status)
            if request.verb == "create" and request.name == "a"
            else None
        )

    client = cluster.client(faults=faults)
    with pytest.raises(kind) as caught:
        await client.create(CONFIG_MAP, _map("a"))
    assert caught.value.status == status
    await client.create(CONFIG_MAP, _map("b"))
    assert [b["metadata"]["name"] for b in (await cluster.list(CONFIG_MAP)).items] == ["b"]


@pytest.mark.parametrize("done", [False, True])
async def test_after_a_lost_answer_the_outcome_is_unknown(
    cluster: simulator.SimulatedCluster, /, done: bool
) -> None:
    client = cluster.client(faults=lambda _: simulator.Silence(30, done))
    with pytest.raises(errors.ClusterUnreachable):
        await client.create(CONFIG_MAP, _map("a"))
    assert asyncio.get_running_loop().time() == 30
    assert len((await cluster.list(CONFIG_MAP)).items) == done


async def test_a_late_watch_sends_all_events_in_order_and_a_bookmark_covers_only_sent_ones(
    cluster: simulator.SimulatedCluster, /
) -> None:
    cluster.lag = lambda _: 70.0
    since = (await cluster.list(CONFIG_MAP)).version
    watch = cluster.watch(CONFIG_MAP, since)
    for name in ("a", "b"):
        await cluster.create(CONFIG_MAP, _map(name))
    events = [await anext(watch) for _ in range(3)]
    assert [event.object["metadata"].get("name") for event in events] == ["a", "b", None]
    assert events[2].type is EventType.BOOKMARK
    await cluster.create(CONFIG_MAP, _map("c"))
    later = [await anext(watch) for _ in range(2)]
    assert max(int(event.version) for event in later if event.type is EventType.ADDED) > int(
        events[2].version
    )
    assert asyncio.get_running_loop().time() >= 4 * 70


async def test_a_watch_can_be_cut_with_an_error(cluster: simulator.SimulatedCluster, /) -> None:
    watch = cluster.watch(CONFIG_MAP, (await cluster.list(CONFIG_MAP)).version)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(1)
    cluster.cut_watches(errors.ServerFault("garbage in the stream", 500))
    with pytest.raises(errors.ServerFault, match="garbage"):
        await waiting


async def test_requests_are_counted_by_verb_and_resource(
    cluster: simulator.SimulatedCluster, /
) -> None:
    client = cluster.client()
    assert client.count.total == 0
    await client.create(CONFIG_MAP, _map("a"))
    await client.list(CONFIG_MAP)
    await client.dry_run(CONFIG_MAP, _map("a"), manager="x")
    await client.apply(CONFIG_MAP, _map("a"), manager="x")
    assert client.count.of("create", "configmaps") == 1
    assert client.count.of(plural="configmaps") == 4
    assert (client.count.total, client.count.writes) == (4, 2)
    client.count.reset()
    assert client.count.total == 0


@pytest.mark.play(habits=simulator.Habits(latency=0.25))
async def test_latency_passes_on_the_loops_clock(cluster: simulator.SimulatedCluster, /) -> None:
    await cluster.list(CONFIG_MAP)
    assert asyncio.get_running_loop().time() == 0.25


async def test_unsupported_requests_are_refused(cluster: simulator.SimulatedCluster, /) -> None:
    with pytest.raises(
        errors.Invalid,
        match="the simulated cluster can't do this: a patch of the subresource scale",
    ):
        await cluster.patch(DAEMONSET, "default", "x", {}, subresource="scale")
    with pytest.raises(errors.ClusterError, match="does not allow this method"):
        await cluster.create(CONFIG_MAP, {"metadata": {"name": "a"}})


async def test_neither_side_changes_what_the_other_holds(
    cluster: simulator.SimulatedCluster, /
) -> None:
    body = _map("a")
    made = await cluster.create(CONFIG_MAP, body)
    body["data"]["a"] = "changed"
    assert body["metadata"] == {"name": "a", "namespace": "default"}
    assert (await cluster.get(CONFIG_MAP, "default", "a")) == made
    await cluster.patch(CONFIG_MAP, "default", "a", {"data": {"a": "2"}})
    assert made["data"] == {"a": "1"}


@pytest.mark.slow
def test_two_runs_give_the_same_objects_to_the_byte() -> None:
    def run(seed: int) -> list[Body]:
        result: list[Body] = []

        async def scene(cluster: simulator.SimulatedCluster) -> None:
            for i in range(3):
                await cluster.create(POD, stage.pod(f"p{i}", f"node-{i}"))
            await asyncio.sleep(60)
            for resource in (NAMESPACE, POD):
                result.extend((await cluster.list(resource)).items)

        stage.play(scene, nodes=3, behaviour=simulator.Behaviour(jitter=0.5), seed=seed)
        return result

    assert run(1) == run(1)
    assert [b["metadata"]["uid"] for b in run(1)] != [b["metadata"]["uid"] for b in run(2)]
