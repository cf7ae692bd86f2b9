"""Leadership: a single service leads from the start, a replica while it holds the lease."""

from __future__ import annotations

import asyncio
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

from gitops_ds import errors
from gitops_ds.client.fence import Fence
from gitops_ds.client.leader_election import Candidate
from gitops_ds.client.leader_lease import Clocks, Election
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.events.base import Emit
from gitops_ds.service.runnable import Runnable
from gitops_ds.settings.service import Service

SETTLE = 0.3  # seconds in which watches deliver the last writes of the previous leader
AGAIN = 1.0  # seconds between attempts to begin


def steady() -> float:
    """Seconds of a monotonic clock that includes the time of system sleep, if available."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def election(service: Service, cluster: Cluster, fence: Fence, emit: Emit) -> Election | None:
    """The election of the settings; without one the fence is open."""
    settings = service.election
    if not settings.held:
        fence.move(float("inf"))
        return None
    me = f"{socket.gethostname()}_{uuid.uuid4()}"
    candidate = Candidate(service.cluster.namespace, settings.lease, me, settings.timing)
    return Election(cluster, candidate, fence, emit, Clocks(steady, time.time, random.random))


class LeaderCallbacks:
    """Starts and stops the parts with the leadership; `first` is awaited before each start."""

    def __init__(self, parts: Sequence[Runnable], first: Callable[[], Awaitable[None]]) -> None:
        self._parts, self._first = parts, first
        self._beginning: asyncio.Task[None] | None = None

    def on_change(self, leading: bool, group: asyncio.TaskGroup) -> None:
        """Starts or stops leading. An error of `first` ends the group."""
        if self._beginning is not None:
            self._beginning.cancel()
        if leading:
            self._beginning = group.create_task(self._begin())
        else:
            for part in self._parts:
                part.stop_leading()

    async def _begin(self) -> None:
        while True:
            try:
                await self._first()
                break
            except errors.ClusterError:
                await asyncio.sleep(AGAIN)
        for part in self._parts:
            part.start_leading()
