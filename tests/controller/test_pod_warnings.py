"""Events of pods that are not well: read for single pods, seldom, and not without permission."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.controller import pod_warnings
from gitops_ds.controller.pod_warnings import PodWarnings
from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, Listing, Selection
from gitops_ds.core.daemonset import PodCause
from gitops_ds.core.objects import EVENT, Key, Resource
from gitops_ds.core.values import replace
from tests.apimachinery.kubelet_pods import MOUNT, READINESS
from tests.daemonset.world import World, daemonset
from tests.simulator.setup import play

CAUSE = PodCause("Unhealthy", READINESS["message"])


class EventServer:
    """Counts the requests for events, and answers each list with `events`."""

    def __init__(self, *events: dict[str, Any], allowed: bool = True) -> None:
        self.events, self.allowed, self.reviews, self.read = (
            events,
            allowed,
            0,
            list[tuple[float, str]](),
        )
        self.error: Exception | None = None

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        assert (verb, resource, namespace) == ("list", EVENT, "")
        self.reviews += 1
        return self.allowed

    async def list(self, resource: Resource, which: Selection) -> Listing:
        assert (resource, which.namespace) == (EVENT, "logging")
        uid, type = which.fields.split(",")
        assert type == "type=Warning"
        self.read.append((asyncio.get_running_loop().time(), uid))
        if self.error is not None:
            raise self.error
        return Listing(list(self.events), "1")


def unready(nodes: int) -> World:
    """A DaemonSet whose pods never get ready."""
    world = World(daemonset(), nodes)
    world.turn()
    for pod in world.pods.values():
        world.start(pod, ready=False)
    return world


def followed(
    server: EventServer, world: World, scene: Callable[[PodWarnings, list[Key]], Any]
) -> None:
    async def run() -> None:
        cluster: Any = server
        reading: Cluster = cluster
        changed: list[Key] = []
        clock, start = asyncio.get_running_loop().time, asyncio.get_running_loop().time()
        began = world.now
        warnings = PodWarnings(reading, lambda: began + clock() - start, changed.append)
        task = asyncio.create_task(warnings.run())
        await scene(warnings, changed)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(run)


def test_a_pod_is_read_ever_more_seldom_and_its_warning_is_passed_once() -> None:
    server, world = EventServer(READINESS), unready(1)

    async def scene(warnings: PodWarnings, changed: list[Key]) -> None:
        assert not warnings.of(world.observe())
        await asyncio.sleep(3600)
        (uid,) = (pod["metadata"]["uid"] for pod in world.pods.values())
        assert warnings.of(world.observe()) == {uid: CAUSE}
        assert len(changed) == 1
        times = [at for at, _ in server.read]
        assert len(times) < 20
        assert times[1] - times[0] == pytest.approx(10, abs=pod_warnings.EVERY)
        assert times[-1] - times[-2] == pytest.approx(300, abs=pod_warnings.EVERY)
        assert server.reviews == 1
        server.events = (MOUNT,)
        await asyncio.sleep(310)
        assert warnings.of(world.observe())[uid].reason == "FailedMount"
        assert len(changed) == 2

    followed(server, world, scene)


def test_the_warnings_of_a_failing_pod_are_read_at_once_and_those_of_a_starting_one_later() -> None:
    (failing,) = unready(1).observe().pods
    starting = replace(failing, trouble="")
    assert pod_warnings.first_read(failing) <= failing.created
    assert pod_warnings.first_read(replace(starting, restarts=1)) <= failing.created
    assert pod_warnings.first_read(starting) == failing.created + pod_warnings.FIRST
    released = failing.created + 100
    assert pod_warnings.first_read(replace(starting, released=released)) > released


def test_the_requests_of_many_pods_are_bounded() -> None:
    server, world = EventServer(), unready(60)

    async def scene(warnings: PodWarnings, changed: list[Key]) -> None:
        warnings.of(world.observe())
        await asyncio.sleep(600)
        assert len({uid for _, uid in server.read}) == pod_warnings.OF_ONE
        for at, _ in server.read:
            in_round = [one for one, _ in server.read if at <= one < at + pod_warnings.EVERY]
            assert len(in_round) <= pod_warnings.AT_ONCE
        assert not changed

    followed(server, world, scene)


def test_no_event_is_read_of_pods_that_are_well_gone_or_forgotten() -> None:
    server, world = EventServer(READINESS), World(daemonset(), 3)
    world.settle()
    other = unready(2)

    async def scene(warnings: PodWarnings, changed: list[Key]) -> None:
        warnings.of(world.observe())
        await asyncio.sleep(300)
        assert not server.read
        warnings.of(other.observe())
        for pod in other.pods.values():
            other.start(pod)
        warnings.of(other.observe())
        await asyncio.sleep(300)
        assert not server.read
        warnings.of(unready(2).observe())
        warnings.forget(world.observe().daemonset.key)
        await asyncio.sleep(300)
        assert (server.read, server.reviews) == ([], 0)

    followed(server, world, scene)


@pytest.mark.parametrize("refusal", ["review", "list"])
def test_a_refusal_is_not_repeated(refusal: str) -> None:
    server, world = EventServer(READINESS, allowed=refusal != "review"), unready(3)
    if refusal == "list":
        server.error = errors.Forbidden("no", 403, "Forbidden")

    async def scene(warnings: PodWarnings, changed: list[Key]) -> None:
        for _ in range(100):
            assert not warnings.of(world.observe())
            await asyncio.sleep(60)
        assert (len(server.read), server.reviews) == (int(refusal == "list"), 1)
        assert not changed

    followed(server, world, scene)


def test_a_failing_api_server_is_read_again_later() -> None:
    server, world = EventServer(READINESS), unready(1)
    server.error = errors.ServerFault("away", 503)

    async def scene(warnings: PodWarnings, changed: list[Key]) -> None:
        warnings.of(world.observe())
        await asyncio.sleep(100)
        assert 2 <= len(server.read) <= 5
        server.error = None
        await asyncio.sleep(200)
        assert list(warnings.of(world.observe()).values()) == [CAUSE]

    followed(server, world, scene)
