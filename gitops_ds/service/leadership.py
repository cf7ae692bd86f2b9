"""Who acts: a service alone from the start, one of several replicas as long as it holds the lease."""

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

SETTLE = 0.3  # seconds in which the watches bring what the leader before wrote last
AGAIN = 1.0  # seconds until a beginning that failed is tried again


def steady() -> float:
    """Seconds that never go back, and go on while the machine sleeps, where the system counts
    those.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def election(service: Service, cluster: Cluster, fence: Fence, emit: Emit) -> Election | None:
    """The election that the settings ask for; without one the fence stands open."""
    told = service.election
    if not told.held:
        fence.move(float("inf"))
        return None
    me = f"{socket.gethostname()}_{uuid.uuid4()}"
    candidate = Candidate(service.cluster.namespace, told.lease, me, told.timing)
    return Election(cluster, candidate, fence, emit, Clocks(steady, time.time, random.random))


class Duty:
    """Lets the parts act while it is our turn; before they begin, `first` is awaited each time."""

    def __init__(self, parts: Sequence[Runnable], first: Callable[[], Awaitable[None]]) -> None:
        self._parts, self._first = parts, first
        self._beginning: asyncio.Task[None] | None = None

    def turn(self, ours: bool, group: asyncio.TaskGroup) -> None:
        """It is, or is no more, our turn. What `first` refuses ends the group."""
        if self._beginning is not None:
            self._beginning.cancel()
        if ours:
            self._beginning = group.create_task(self._begin())
        else:
            for part in self._parts:
                part.rest()

    async def _begin(self) -> None:
        while True:
            try:
                await self._first()
                break
            except errors.ClusterError:
                await asyncio.sleep(AGAIN)
        for part in self._parts:
            part.act()
