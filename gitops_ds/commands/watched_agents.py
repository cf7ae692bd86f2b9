"""The status of all agents on watches, for commands that wait or follow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from gitops_ds import errors
from gitops_ds.controller.controller import Controller
from gitops_ds.controller.powers import Powers
from gitops_ds.daemonset import competing_controller
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.events.base import Event, WatchFailed

T = TypeVar("T")
# permanent errors of a list or a watch
_LASTING = (
    errors.Forbidden,
    errors.Unauthorized,
    errors.NotFound,
    errors.BadRequest,
    errors.Invalid,
)
STATE_SECONDS = 5.0  # between two reads of the owner's state


class WatchedAgents(msgspec.Struct, frozen=True):
    """The status of all agents, kept current by watches; `failure` gets the error that ends
    them.
    """

    tracker: StatusTracker
    controller: Controller
    failure: asyncio.Future[None]

    async def unless_failed(self, work: Awaitable[T]) -> T:
        """The result of the work. Raises the error of the watches as soon as one occurs."""
        task = asyncio.ensure_future(work)
        try:
            waited: set[asyncio.Future[Any]] = {task, self.failure}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.failure.result()
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def watching(
    cluster: Cluster, clock: Callable[[], float], say: Callable[[str], None]
) -> AsyncIterator[WatchedAgents]:
    """The agents, watched while the context is open. `say` receives errors that are retried."""
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(event: Event) -> None:
        if isinstance(event, WatchFailed) and not failure.done():
            if isinstance(event.error, _LASTING):
                failure.set_exception(event.error)
            else:
                say(f"{event.resource.plural}: {event.error}; retrying")

    def finished(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not failure.done() and (error := task.exception()) is not None:
            failure.set_exception(error)

    controller = Controller(cluster, Powers.PACE, receive, clock=clock, chance=random.random)
    tracker = StatusTracker(controller, dict, clock)
    tasks = [asyncio.create_task(controller.run()), asyncio.create_task(tracker.run())]
    for task in tasks:
        task.add_done_callback(finished)
    try:
        yield WatchedAgents(tracker, controller, failure)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        failure.cancel()


async def synced(watched: WatchedAgents) -> None:
    """Returns when the status of every agent is known."""
    changes = watched.tracker.changed()
    await watched.controller.synced.wait()
    while len(watched.tracker.agents()) < sum(
        key.name != competing_controller.PROBE for key in watched.controller.keys
    ):
        await anext(changes)
