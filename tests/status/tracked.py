"""The status tracker of a service, beside a controller on the simulated cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gitops_ds.controller.controller import Controller
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing.simulator import virtual_time
from tests.simulator.setup import Setup


@contextlib.asynccontextmanager
async def tracked(
    there: Setup,
    controller: Controller | None = None,
    states: Callable[[], Mapping[str, DeployerState]] = dict,
    **options: Any,
) -> AsyncIterator[StatusTracker]:
    """The tracker of a synced controller, by default of a new one. It runs and gets the events."""
    controller = controller or there.begin()
    await controller.observer.synced.wait()
    tracker = StatusTracker(controller.observer, states, virtual_time.clock(), **options)
    there.subscribers.append(tracker.handle)
    running = asyncio.create_task(tracker.run())
    try:
        yield tracker
    finally:
        running.cancel()
