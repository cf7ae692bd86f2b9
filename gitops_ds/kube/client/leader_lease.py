"""Leader election on a Lease: acquires it when it is free, renews it well before its end, and
releases it on stop.

The rules are in leader_election. Every renewal moves the fence around all other writes; the loss of
the lease closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.leader_election import (
    LeaderElected,
    LeaderLost,
    LeaderObserved,
    LeaseFailed,
    StandbyStarted,
)
from gitops_ds.core.objects import LEASE, NAMESPACE, Body
from gitops_ds.kube.client import leader_election
from gitops_ds.kube.client.fence import Fence
from gitops_ds.kube.client.leader_election import Candidate

RELEASE_SECONDS = 1.0


class Clocks(msgspec.Struct, frozen=True):
    """Seconds that never go back (as the fence's), seconds since 1970, and numbers in [0, 1)."""

    steady: Callable[[], float]
    wall: Callable[[], float]
    chance: Callable[[], float]


class Election:
    """One candidate. `cluster` is only for the lease and has no fence."""

    def __init__(
        self, cluster: Cluster, candidate: Candidate, fence: Fence, emit: Emit, clocks: Clocks
    ) -> None:
        """The election starts with `run`."""
        self._cluster, self._candidate, self._fence, self._emit, self._clocks = (
            cluster,
            candidate,
            fence,
            emit,
            clocks,
        )
        self._on_change: Callable[[bool], None] = lambda _: None
        self._stopping = asyncio.Event()
        self._error = self._holder = ""
        self._attempted = clocks.steady()
        self.leads = False

    @property
    def idle_for(self) -> float:
        """Seconds since the last attempt to read or write the lease."""
        return self._clocks.steady() - self._attempted

    def stop(self) -> None:
        """Makes `run` release the lease and return."""
        self._stopping.set()

    async def run(self, on_change: Callable[[bool], None]) -> None:
        """Runs until `stop`. `on_change` is called at once when this candidate becomes the leader
        (True) and when it loses leadership (False).
        """
        self._on_change = on_change
        self._emit(StandbyStarted(*self._names))
        try:
            while not self._stopping.is_set():
                await self._attempt()
                self._publish_change()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), self._pause())
        finally:
            self._fence.close()
        await self._release()

    @property
    def _names(self) -> tuple[float, str, str, str]:
        return (
            self._clocks.wall(),
            self._candidate.namespace,
            self._candidate.lease,
            self._candidate.me,
        )

    def _pause(self) -> float:
        return leader_election.pause(self._candidate, self._clocks.steady(), self._clocks.chance())

    async def _attempt(self) -> None:
        now, message = self._clocks.steady(), ""
        try:
            async with asyncio.timeout(
                self._candidate.until - now if self._candidate.leads(now) else None
            ):
                await self._try()
        except TimeoutError:
            message = "no answer in time"
        except errors.ClusterError as error:
            message = str(error)
        if message and message != self._error:  # the same error is published once
            self._emit(LeaseFailed(*self._names, message))
        self._error, self._attempted = message, self._clocks.steady()

    async def _try(self) -> None:
        """One attempt to hold the lease. The leader writes at once; after a conflict the lease is
        read, and written once more.
        """
        if not (self._candidate.leads(self._clocks.steady()) and self._candidate.version):
            await self._read()
        for _ in range(2):
            sent = self._clocks.steady()
            body = leader_election.claim(self._candidate, sent, self._clocks.wall())
            if body is None:
                return
            try:
                written = await self._write(body)
            except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
                await self._read()
                continue
            self._update(
                leader_election.wrote(self._candidate, written, sent, self._clocks.steady())
            )
            return

    async def _timed(self, request: Coroutine[None, None, Body]) -> Body:
        """One request with its own deadline; its duration updates the latency."""
        began = self._clocks.steady()
        try:
            async with asyncio.timeout(self._candidate.patience):
                return await request
        finally:
            self._candidate = leader_election.took(self._candidate, self._clocks.steady() - began)

    async def _read(self) -> None:
        try:
            request = self._cluster.get(LEASE, self._candidate.namespace, self._candidate.lease)
            lease: Body | None = await self._timed(request)
        except errors.NotFound:
            lease = None
        self._update(leader_election.saw(self._candidate, lease, self._clocks.steady()))

    async def _write(self, body: Body) -> Body:
        if self._candidate.version:
            return await self._timed(self._cluster.replace(LEASE, body))
        try:
            return await self._timed(self._cluster.create(LEASE, body))
        except errors.NotFound:
            with contextlib.suppress(errors.AlreadyExists):
                namespace = {
                    "apiVersion": "v1",
                    "kind": NAMESPACE.kind,
                    "metadata": {"name": self._candidate.namespace},
                }
                await self._timed(self._cluster.create(NAMESPACE, namespace))
            raise

    def _update(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._fence.move(candidate.until)
        self._publish_change()

    def _publish_change(self) -> None:
        """Publishes a change of the leader."""
        candidate = self._candidate
        leads, was = candidate.leads(self._clocks.steady()), self.leads
        self.leads = leads
        if leads and not was:
            self._emit(LeaderElected(*self._names))
            self._on_change(True)
        elif was and not leads:
            self._fence.close()
            self._on_change(False)
            another = candidate.holder not in ("", candidate.me)
            why = (
                f"{candidate.holder} holds it"
                if another
                else self._error or "it was not renewed in time"
            )
            self._emit(LeaderLost(*self._names, why))
        if candidate.holder not in ("", self._holder, candidate.me):
            self._emit(LeaderObserved(*self._names, candidate.holder))
        self._holder = candidate.holder

    async def _release(self) -> None:
        """Releases the lease, so that another candidate acquires it at once."""
        self._on_change(False)
        if self.leads:
            with contextlib.suppress(errors.ClusterError, TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._write_release()

    async def _write_release(self) -> None:
        """Writes the released lease. A renewal whose reply was lost has changed the version: then
        the lease is read, and written once more.
        """
        for _ in range(2):
            body = leader_election.release(self._candidate, self._clocks.wall())
            if body is None:
                return
            try:
                await self._cluster.replace(LEASE, body)
                return
            except errors.Conflict:
                await self._read()
