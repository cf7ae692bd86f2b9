"""The parts of a service: they run, are on standby while another replica leads, and report when
they are stuck. Some attempt items at individual times.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from gitops_ds.controller.controller import Controller
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.status.cluster_reports import ClusterRow
from gitops_ds.status.reporter import StatusReporter
from gitops_ds.status.tracker import StatusTracker

if TYPE_CHECKING:  # a controller without repositories does not import the deployer
    from gitops_ds.deploy import loop as deployer_loop


class Runnable(Protocol):
    """A part that runs as long as the service: the controller, and each deployer."""

    @property
    def unready(self) -> str:
        """Why the part is not ready; empty when it is."""
        ...

    @property
    def seconds_without_progress(self) -> float:
        """Seconds since its work last made progress."""
        ...

    async def run(self) -> None:
        """Runs until `stop`. While another replica leads, it writes nothing and keeps its caches up
        to date.
        """
        ...

    def stop(self) -> None:
        """Requests the end of `run`, at the next safe point."""
        ...


class DeployerPart(Runnable):
    """A part with one deployer loop, None before it begins. `tracker` is the status of agents."""

    tracker: StatusTracker | None = None
    loop: deployer_loop.Loop | None = None

    def __init__(self, leadership: Leadership) -> None:
        """The loop writes only while this replica leads."""
        self._leadership = leadership
        leadership.listen(self._lead)

    def begin(self, loop: deployer_loop.Loop) -> None:
        """Sets the loop, before it runs."""
        self.loop = loop
        if not self._leadership.leads:
            loop.lead(False)

    def _lead(self, leads: bool) -> None:
        if self.loop is not None:
            self.loop.lead(leads)

    @property
    def clusters(self) -> Sequence[ClusterRow]:
        """All clusters of its repository in their order; none without an order."""
        return ()

    @property
    def status(self) -> SourceStatus | None:
        """The status of its repository; None while another replica leads."""
        return self.loop.status if self.loop else None

    @property
    def requires_agents(self) -> bool:
        """Whether nodes wait for the agents that its source requires."""
        return True

    @property
    @abstractmethod
    def unready(self) -> str:
        """Why its first reconciliation is incomplete; empty after it, also if it failed."""

    @property
    def knows_required(self) -> bool:
        """Whether an apply has ended once, and the agents are known that nodes wait for: by the
        stored state, or by the commit if an earlier version stored none.
        """
        loop = self.loop
        state = loop.deployer_state if loop else None
        if loop is None or state is None or state.last_attempted is None:
            return False
        return state.knows_required or loop.bundle is not None

    @property
    def seconds_without_progress(self) -> float:
        """Seconds since its reconciliation last made progress."""
        return self.loop.seconds_without_progress if self.loop else 0.0


class ServiceParts(msgspec.Struct, frozen=True):
    """The parts of a service. The deployers of repositories follow that of templates. `ledger` has
    the records of rollouts that count, None if all do.
    """

    deployers: Sequence[DeployerPart]
    controller: Controller
    status: StatusReporter
    notifications: Runnable | None
    ledger: RolloutLedger | None = None

    @property
    def runnables(self) -> Sequence[Runnable]:
        """All parts, in the order of their start."""
        notifications = [self.notifications] if self.notifications else []
        return [*self.deployers, self.controller, self.status, *notifications]


T = TypeVar("T")


class TimedAttempts(ABC, Generic[T]):
    """Attempts pending items while `run` runs; `clock` returns seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Announces the end of a reconciliation."""
        self._wake.set()

    async def run(self) -> None:
        """Attempts due items until it is cancelled."""
        while True:
            for item, at in self._pending():
                if at <= self._now():
                    await self._attempt(item)
            self._wake.clear()
            next_at = min((at for _, at in self._pending()), default=None)
            seconds = None if next_at is None else max(0.0, next_at - self._now())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    @abstractmethod
    def _pending(self) -> Sequence[tuple[T, float]]:
        """The items, each with the time of its next attempt."""

    @abstractmethod
    async def _attempt(self, item: T) -> None:
        """One attempt."""
