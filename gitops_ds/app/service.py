"""The service: the scheduled deployer loop and the controller core, put together and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_ds.app import clusters
from gitops_ds.app.clusters import Connection
from gitops_ds.controller import events, probe
from gitops_ds.controller.loop import Controller, Powers
from gitops_ds.journal.files import Journal
from gitops_ds.model.record import Emit, Record
from gitops_ds.settings.service import Service

if TYPE_CHECKING:
    from gitops_ds.controller import sync

Say = Callable[[str], None]
GRACE = 4.0  # seconds that a pass or a turn has to come to its end


async def run(service: Service, emit: Emit, say: Say, *, at_desk: bool) -> None:
    """Runs until SIGTERM or SIGINT. `at_desk`: local repositories and the person's own ssh are theirs to use.

    Raises GitopsError when it can't begin: wrong settings, no cluster. Later trouble is told and tried again.
    """
    hearers = [emit]

    def tell(told: Record) -> None:
        for hear in hearers:
            hear(told)

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    connection = Connection(service.cluster.kubeconfig, service.cluster.context, service.cluster.namespace)
    async with contextlib.AsyncExitStack() as stack:
        if service.journal.path:
            journal = Journal(Path(service.journal.path), service.journal.limits, tell)
            stack.callback(journal.close)
            hearers.append(journal.hear)
        cluster = await stack.enter_async_context(clusters.opened(connection))
        version = await cluster.version()
        deployer: sync.Loop | None = None

        def ready() -> bool:
            return not service.repository.url or (deployer is not None and deployer.first_pass.is_set())

        if service.listen:
            # Web pages and metrics take 3 MiB that nobody asks for without an address.
            from gitops_ds.report import metrics
            from gitops_ds.web import server

            counters = metrics.Metrics()
            hearers.append(counters.hear)
            runner = await server.serve(service.listen, counters, ready)
            stack.push_async_callback(runner.cleanup)
        if service.repository.url:
            # Git, the renderer and the scheduler take 10 MiB, which a controller alone has no use for.
            from gitops_ds.app import following

            stack.enter_context(contextlib.suppress(following.Stopped))
            deployer = await stack.enter_async_context(following.deployer(service, cluster, tell, at_desk, stopping))
        controller = None
        if service.powers is not Powers.PACE:  # no agent has a rollout policy yet, so there is nothing to pace
            if service.powers is Powers.FULL:
                await stack.enter_async_context(probe.only_one(cluster, service.cluster.namespace, time.time))
            hear = await stack.enter_async_context(events.beside(cluster, None, tell))
            controller = Controller(cluster, service.powers, hear, clock=time.time, chance=random.random)
            if service.direct:
                controller.place_directly()
        await _until(stopping, [part for part in (deployer, controller) if part is not None], lambda: say(_ready(service, version)))


async def _until(stopping: asyncio.Event, parts: Sequence[sync.Loop | Controller], begun: Callable[[], None]) -> None:
    """Runs the parts until asked to stop; what is not over some seconds later is cut, for the next start goes on from there."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in parts]
        begun()
        await stopping.wait()
        for part in parts:
            part.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=GRACE)
            for task in late:
                task.cancel()


def _ready(service: Service, version: str) -> str:
    follows = f"following {service.repository.url}" if service.repository.url else "without a repository"
    return f"ready: {follows}, powers {service.powers}, Kubernetes {version}"
