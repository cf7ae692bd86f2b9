"""List and watch: the machine as a table, and the driver and the store on the simulated API server
in virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import EventType, Listing, Selection, WatchEvent
from gitops_ds.core.objects import CONFIG_MAP, Body, Resource
from gitops_ds.kube.client import informer
from gitops_ds.kube.client.informer import (
    Failing,
    InformerState,
    Returning,
    Start,
    WatchEnded,
    Watching,
    WorldVersion,
)
from gitops_ds.kube.client.informer_store import InformerStore
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults, virtual_time

LISTING = Listing((), "7")
EVENT = WatchEvent(EventType.MODIFIED, {}, "8")
BOOKMARK = WatchEvent(EventType.BOOKMARK, {}, "9")
GONE, DOWN, FAULT = (
    errors.Expired("too old"),
    errors.ClusterUnreachable("no answer"),
    errors.ServerFault("no watch here"),
)

ROWS: list[tuple[str, InformerState, informer.InformerInput, InformerState, bool]] = [
    ("a list is followed from its version", Start(3), LISTING, Watching("7", 3), True),
    (
        "a watch that lived long and ended is taken up again",
        Watching("7", 3),
        WatchEnded(600),
        Returning("7"),
        False,
    ),
    (
        "one that ended at once counts as a failure",
        Watching("7"),
        WatchEnded(0.1),
        Returning("7", 1),
        False,
    ),
    (
        "an error after a long life is the first one",
        Watching("7", 5),
        WatchEnded(600, DOWN),
        Returning("7", 1),
        True,
    ),
    (
        "an error after a short one is one more",
        Watching("7", 5),
        WatchEnded(1, DOWN),
        Returning("7", 6),
        True,
    ),
    ("a version too old requires a new list", Watching("7"), WatchEnded(1, GONE), Start(1), True),
    (
        "the same world is followed on",
        Returning("7"),
        WorldVersion("7"),
        Watching("7", resumed=True),
        True,
    ),
    ("a later one too", Returning("99"), WorldVersion("100"), Watching("99", resumed=True), True),
    ("an older one requires a new list", Returning("100"), WorldVersion("99"), Start(), True),
    (
        "a version that is not numeric is not compared",
        Returning("100"),
        WorldVersion("x"),
        Watching("100", resumed=True),
        True,
    ),
    (
        "a watch that fails for the third time without an event requires a new list",
        Watching("7", 2, fruitless=2),
        WatchEnded(0.1, FAULT, had_events=False),
        Start(3, 3),
        True,
    ),
    (
        "so does one that ends at once for the third time",
        Watching("7", 2, fruitless=2),
        WatchEnded(0.1, had_events=False),
        Start(3, 3),
        False,
    ),
    (
        "not where the server throttles requests",
        Watching("7", 2, fruitless=2),
        WatchEnded(0.1, errors.TooManyRequests("slow down"), had_events=False),
        Returning("7", 3, 3),
        True,
    ),
    (
        "an event pays that off",
        Watching("7", 2, fruitless=2),
        WatchEnded(0.1, FAULT),
        Returning("7", 3),
        True,
    ),
    (
        "a watch that was silent for minutes requires a new list",
        Watching("7"),
        WatchEnded(600, None, 600, had_events=False),
        Start(),
        True,
    ),
    ("a refused list is tried again", Start(), DOWN, Start(1), True),
    ("after an outage a new list is required", Returning("7", 1), DOWN, Start(2), True),
    (
        "not after a refused request",
        Returning("7"),
        errors.Forbidden("no right"),
        Returning("7", 1),
        True,
    ),
    (
        "not after a throttled request",
        Returning("7"),
        errors.TooManyRequests("slow down"),
        Returning("7", 1),
        True,
    ),
]


@pytest.mark.parametrize(
    ("state", "input", "after", "publishes"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_the_machine(
    state: InformerState, input: informer.InformerInput, after: InformerState, publishes: bool
) -> None:
    step = informer.step(state, input, 0.0)
    assert step.state == after
    assert (step.event is not None) == publishes


@pytest.mark.parametrize(
    ("state", "input", "lost"),
    [
        (Watching("7"), WatchEnded(0.1, GONE), True),
        (Watching("7"), WatchEnded(600, None, 600, had_events=False), True),
        (Returning("7"), DOWN, True),
        (Returning("7"), FAULT, True),
        (Watching("7"), WatchEnded(0.1, DOWN), False),
        (Returning("7"), errors.Forbidden("no right"), False),
        (Start(), DOWN, False),
    ],
)
def test_the_history_is_lost_after_410_silence_or_an_outage(
    state: InformerState, input: informer.InformerInput, lost: bool
) -> None:
    event = informer.step(state, input, 0.0).event
    assert isinstance(event, Failing)
    assert event.history_lost == lost


def test_failures_wait_longer_each_time_with_jitter_and_an_end() -> None:
    waits = [informer.step(Start(failures), DOWN, 0.0).wait for failures in range(8)]
    assert waits == [0.8, 1.6, 3.2, 6.4, 12.0, 12.0, 12.0, 12.0]
    assert informer.step(Start(), DOWN, 0.5).wait == 0.8 * 1.5
    assert informer.step(Watching("7"), WatchEnded(600), 0.5).wait == 0


def test_a_version_that_a_restarted_server_lost_is_listed_at_once_and_a_second_time_later() -> None:
    resumed = informer.step(Returning("7", 5), WorldVersion("9"), 0.0).state
    assert informer.step(resumed, WatchEnded(0.1, GONE), 0.0).wait == 0
    listed = informer.step(Start(6), LISTING, 0.0).state
    assert informer.step(listed, WatchEnded(0.1, GONE), 0.0).wait == 12.0


def test_a_server_that_names_a_wait_gets_it() -> None:
    error = errors.TooManyRequests("slow down")
    error.retry_after = 17.0
    assert informer.step(Start(), error, 0.0).wait == 17.0


def config_map(name: str, **data: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


def names(store: InformerStore[Any]) -> list[str]:
    return sorted(key.name for key in store.objects)


@contextlib.asynccontextmanager
async def followed(
    cluster: simulator.SimulatedCluster, store: InformerStore[Any]
) -> AsyncIterator[None]:
    task = asyncio.create_task(
        informer.run(cluster, CONFIG_MAP, Selection("default"), store.handle, random=lambda: 0.0)
    )
    try:
        await asyncio.wait_for(store.synced.wait(), 10)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def running(**habits: float) -> tuple[simulator.SimulatedCluster, simulator.Client]:
    cluster = simulator.SimulatedCluster(habits=simulator.Habits(**habits))
    await cluster.start()
    return cluster, cluster.client("people")


async def test_a_store_follows_the_watch_and_emits_changes() -> None:
    cluster, people = await running()
    await people.create(CONFIG_MAP, config_map("a"))
    events: list[tuple[str, str]] = []
    store: InformerStore[Body] = InformerStore(
        dict, lambda news: events.extend((e.type, e.object["metadata"]["name"]) for e in news)
    )
    async with followed(cluster, store):
        await people.create(CONFIG_MAP, config_map("b"))
        await people.delete(CONFIG_MAP, "default", "a")
        await asyncio.sleep(1)
        assert names(store) == ["b"]
        assert events == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_an_object_deleted_between_watches_is_reported_after_a_new_list() -> None:
    cluster, people = await running()
    for name in "abc":
        await people.create(CONFIG_MAP, config_map(name))
    events: list[tuple[str, str]] = []
    store: InformerStore[Body] = InformerStore(
        dict, lambda news: events.extend((e.type, e.object["metadata"]["name"]) for e in news)
    )
    async with followed(cluster, store):
        cluster.faults = lambda request: (
            faults.failure(503) if request.verb in ("watch", "list") else None
        )
        cluster.cut_watches()
        await asyncio.sleep(5)
        assert store.failing is not None
        await people.delete(CONFIG_MAP, "default", "a")
        await people.patch(CONFIG_MAP, "default", "b", {"data": {"x": "y"}})
        cluster.server.store.compact()
        cluster.faults = faults.none
        events.clear()
        await asyncio.sleep(60)
        assert events == [("MODIFIED", "b"), ("DELETED", "a")]
        assert names(store) == ["b", "c"]
        assert store.failing is None


async def test_bookmarks_move_the_version_of_a_quiet_kind() -> None:
    cluster, people = await running(bookmark_every=60.0)
    store: InformerStore[Body] = InformerStore(dict)
    async with followed(cluster, store):
        before = int(store.version)
        await people.create(
            CONFIG_MAP,
            {**config_map("x"), "metadata": {"name": "x", "namespace": "kube-system"}},
        )
        await asyncio.sleep(61)
        assert int(store.version) > before


class WeakBody(dict[str, Any]):
    """A body with weak references."""


class OneObject:
    """A cluster with one object, of which it keeps only a weak reference, and silent watches."""

    def __init__(self) -> None:
        self.listed: weakref.ref[WeakBody] | None = None

    async def list(self, resource: Resource, which: Selection) -> Listing:
        body = WeakBody(config_map("x"))
        self.listed = weakref.ref(body)
        return Listing((body,), "7")

    async def watch(
        self, resource: Resource, since: str, which: Selection
    ) -> AsyncIterator[WatchEvent]:
        await asyncio.sleep(3600)
        yield BOOKMARK


@pytest.mark.slow
async def test_the_bodies_of_a_list_are_released_while_the_watch_lasts() -> None:
    cluster: Any = OneObject()
    store = InformerStore(lambda body: str(body["metadata"]["name"]))
    following = asyncio.create_task(
        informer.run(cluster, CONFIG_MAP, Selection(), store.handle, random=lambda: 0.0)
    )
    await store.synced.wait()
    await asyncio.sleep(60)
    gc.collect()
    assert list(store.objects.values()) == ["x"]
    assert cluster.listed() is None
    following.cancel()


BROKEN_WATCHES: dict[str, faults.RequestFault] = {
    "403: the verb is missing": faults.failure(403),
    "404": faults.failure(404),
    "500": faults.failure(500),
    "503": faults.failure(503),
    "no answer": errors.ClusterUnreachable("no answer in time"),
    "429 each time": faults.failure(429),
    "ends at once": faults.Silence(0.1),
    "cut by a proxy while it is silent": faults.Silence(30.0),
    "accepted and silent": faults.Silence(400.0),
}


@pytest.mark.parametrize("broken", BROKEN_WATCHES.values(), ids=BROKEN_WATCHES)
async def test_a_watch_that_fails_while_lists_work_degrades_to_lists_with_back_off_and_recovers(
    broken: faults.RequestFault,
) -> None:
    cluster, people = await running()
    await people.create(CONFIG_MAP, config_map("a"))
    store: InformerStore[Body] = InformerStore(dict)
    async with followed(cluster, store):
        cluster.faults = lambda request: broken if request.verb == "watch" else None
        cluster.cut_watches()
        await asyncio.sleep(600)
        await people.delete(CONFIG_MAP, "default", "a")
        await people.create(CONFIG_MAP, config_map("b"))
        await asyncio.sleep(informer.LONGEST_SILENCE + 410)
        assert names(store) == ["b"]
        cluster.count.reset()
        await asyncio.sleep(600)
        assert cluster.count.of("list") <= 600 / informer.BACKOFF.longest
        cluster.faults = faults.none
        await asyncio.sleep(410)
        await people.delete(CONFIG_MAP, "default", "b")
        await asyncio.sleep(1)
        assert names(store) == []


class Talking:
    """A cluster whose watches return two events and end after a minute."""

    def __init__(self) -> None:
        self.asked_since: list[str] = []

    async def list(self, _resource: Any, which: Selection) -> Listing:
        return Listing((), "9") if which.fields else LISTING

    async def watch(
        self, _resource: Any, since: str, _which: Selection
    ) -> AsyncIterator[WatchEvent]:
        self.asked_since.append(since)
        yield EVENT
        yield BOOKMARK
        await asyncio.sleep(60)


async def test_events_and_bookmarks_advance_the_version_of_the_next_watch() -> None:
    cluster, events = Talking(), list[object]()
    served: Any = cluster
    task = asyncio.create_task(
        informer.run(served, CONFIG_MAP, Selection(), events.append, random=lambda: 0.0)
    )
    await asyncio.sleep(61)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert events[:3] == [LISTING, EVENT, BOOKMARK]
    assert cluster.asked_since == ["7", "9"]


class OlderWorld:
    """A cluster that is put back to an earlier version, and whose watches are then silent, as after
    a restored backup.
    """

    def __init__(self) -> None:
        self.version = "1000"
        self.items: tuple[Body, ...] = (config_map("old"), config_map("lost"))
        self.lists: list[Selection] = []

    async def list(self, _resource: Any, which: Selection) -> Listing:
        self.lists.append(which)
        return Listing(() if which.fields else self.items, self.version)

    async def watch(
        self, _resource: Any, _since: str, _which: Selection
    ) -> AsyncIterator[WatchEvent]:
        await asyncio.sleep(300)
        for event in ():
            yield event


async def test_a_cluster_restored_to_an_older_version_is_listed_again() -> None:
    world, store = OlderWorld(), InformerStore[Body](dict)
    served: Any = world
    task = asyncio.create_task(
        informer.run(served, CONFIG_MAP, Selection(), store.handle, random=lambda: 0.0)
    )
    await asyncio.sleep(400)
    assert names(store) == ["lost", "old"]
    assert len(world.lists) == 2
    world.version, world.items = "40", (config_map("old"),)
    await asyncio.sleep(300)
    assert (names(store), store.version) == (["old"], "40")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_failure_is_reported_and_retried() -> None:
    events: list[informer.InformerEvent] = []

    async def scene() -> None:
        cluster, _ = await running()
        cluster.faults = lambda request: faults.failure(403) if request.number < 4 else None
        task = asyncio.create_task(
            informer.run(cluster, CONFIG_MAP, Selection(), events.append, random=lambda: 0.0)
        )
        await asyncio.sleep(10)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    virtual_time.run(scene())
    assert [type(entry) for entry in events] == [Failing] * 3 + [Listing]
    assert [entry.retry_in for entry in events if isinstance(entry, Failing)] == [0.8, 1.6, 3.2]
