"""The service: the scheduled deployer loop and the controller core, put together and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gitops_ds.app import clusters
from gitops_ds.app.clusters import Connection
from gitops_ds.controller import events, probe
from gitops_ds.controller.loop import Controller, Powers
from gitops_ds.journal.files import Journal
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.record import Emit, Record
from gitops_ds.settings.service import Service

Say = Callable[[str], None]
GRACE = 4.0  # seconds that a pass or a turn has to come to its end


@dataclass(slots=True)
class Hearers:
    """Whoever hears of every fact: the log first, then what the settings ask for."""

    hearing: list[Emit]

    def tell(self, told: Record) -> None:
        """Passes it on."""
        for hear in self.hearing:
            hear(told)


class Part(Protocol):
    """What runs as long as the service does: the controller, and what follows a repository."""

    @property
    def unready(self) -> str:
        """Why it is of no use yet; nothing when it is."""
        ...

    async def run(self) -> None:
        """Runs until `stop`."""
        ...

    def stop(self) -> None:
        """Ends it soon, at a place where that costs nothing."""
        ...


async def run(service: Service, emit: Emit, say: Say, *, at_desk: bool) -> None:
    """Runs until SIGTERM or SIGINT. `at_desk`: local repositories and the person's own ssh are theirs to use.

    Raises GitopsError when it can't begin: wrong settings, no cluster. Later trouble is told and tried again.
    """
    stopping, hearers = _asked_to_stop(), Hearers([emit])
    connection = Connection(service.cluster.kubeconfig, service.cluster.context, service.cluster.namespace)
    async with contextlib.AsyncExitStack() as stack:
        if service.journal.path:
            journal = Journal(Path(service.journal.path), service.journal.limits, hearers.tell)
            stack.callback(journal.close)
            hearers.hearing.append(journal.hear)
        cluster = await stack.enter_async_context(clusters.opened(connection))
        version = await cluster.version()
        parts: list[Part] = list(_followings(service, cluster, hearers.tell, at_desk))
        if service.powers is Powers.FULL:
            await stack.enter_async_context(probe.only_one(cluster, service.cluster.namespace, time.time))
        hear = await stack.enter_async_context(events.beside(cluster, None, hearers.tell))
        parts.append(_controller(service, cluster, hear))
        if service.listen:
            stack.push_async_callback(await _listening(service.listen, hearers, parts))
        await _until(stopping, parts, lambda: say(_ready(service, version)))


def _asked_to_stop() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def _followings(service: Service, cluster: Cluster, tell: Emit, at_desk: bool) -> Iterable[Part]:
    if not service.repositories:
        return ()
    # Git, the renderer and the scheduler take 10 MiB, which a controller alone has no use for.
    from gitops_ds.app import following

    around = following.Around(service, cluster, tell, at_desk)
    return [following.Following(around, settings) for settings in service.repositories]


def _controller(service: Service, cluster: Cluster, emit: Emit) -> Controller:
    """It runs whatever its powers are: what it sees is what the page and the metrics show."""
    controller = Controller(cluster, service.powers, emit, clock=time.time, chance=random.random)
    if service.direct:
        controller.place_directly()
    return controller


async def _listening(address: str, hearers: Hearers, parts: Sequence[Part]) -> Callable[[], Awaitable[None]]:
    """Serves the web face; returns what ends it."""
    # Web pages and metrics take 3 MiB that nobody asks for without an address.
    from gitops_ds.report import metrics
    from gitops_ds.web import server

    def unready() -> str:
        return "; ".join(part.unready for part in parts if part.unready)

    counters = metrics.Metrics()
    hearers.hearing.append(counters.hear)
    runner = await server.serve(address, server.probes(lambda: "", unready), server.exposition(counters))
    return runner.cleanup


async def _until(stopping: asyncio.Event, parts: Sequence[Part], begun: Callable[[], None]) -> None:
    """Runs the parts until asked to stop; what is not over some seconds later is cut, for the next start goes on from there."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in parts]
        begun()
        await stopping.wait()
        for part in parts:
            part.stop()
        _, late = await asyncio.wait(tasks, timeout=GRACE)
        for task in late:
            task.cancel()


def _ready(service: Service, version: str) -> str:
    follows = f"following {', '.join(one.url for one in service.repositories)}" if service.repositories else "without a repository"
    return f"ready: {follows}, powers {service.powers}, Kubernetes {version}"
