"""What the page shows, from what the service knows anyway: tracker, records, Git. A look at the
page asks nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gitops_ds import errors
from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model.bundle import Manifest, Pool
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.deployer import GitTimed
from gitops_ds.model.objects import Body, CommitId, Key
from gitops_ds.model.snapshot import CommitInfo
from gitops_ds.model.source_status import SourceStatus
from gitops_ds.settings.page import PageSettings
from gitops_ds.web.page import access, routes
from gitops_ds.web.page.access import AccessKind, PageGuard, PageToken
from gitops_ds.web.page.event_feed import EventFeed
from gitops_ds.web.page.view import PageEvent
from gitops_ds.web.server import Routes

PATIENCE = 0.02  # seconds that a page waits for Git; what comes later is shown then
LOOKS_EVERY = 60.0  # seconds
_KEPT = 5_000  # commits whose author and subject are remembered


class History(Protocol):
    """The part of a repository that is asked here (`gitops_ds.git.repository.Repository`)."""

    async def info(self, commit: CommitId) -> CommitInfo:
        """What Git says of a fetched commit."""
        ...


@dataclass(frozen=True, slots=True)
class RepositoryView:
    """What is known of one repository: what its commit wants, and its history where that is at
    hand.
    """

    wanted: Mapping[Key, Manifest] = field(default_factory=dict)
    history: History | None = None
    pools: Sequence[Pool] = ()
    status: SourceStatus | None = None


class Shown:
    """The view of a service. `followed` tells what is known of each repository now."""

    def __init__(
        self,
        cluster: str,
        tracker: StatusTracker,
        followed: Callable[[], Iterable[RepositoryView]],
    ) -> None:
        self._cluster, self._tracker, self._followed = cluster, tracker, followed
        self._version, self._moved = 1, asyncio.Event()
        self._happened = EventFeed(self._move)
        self._looked = 0.0
        self._infos: dict[str, CommitInfo | None] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self._cluster

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def agents(self) -> Sequence[Agent]:
        """Every DaemonSet."""
        return self._tracker.agents()

    def wanted(self, key: Key) -> Body | None:
        """The manifest of the repository that has one."""
        return next((one.wanted[key].body for one in self._followed() if key in one.wanted), None)

    def pools(self) -> Sequence[Pool]:
        """Those of the first repository that names some."""
        return next((one.pools for one in self._followed() if one.pools), ())

    def sources(self) -> Sequence[SourceStatus]:
        """The status of each followed repository."""
        return tuple(one.status for one in self._followed() if one.status is not None)

    def events(self) -> Sequence[PageEvent]:
        """What happened, newest first."""
        return self._happened.events()

    def handle(self, told: Event) -> None:
        """One more record. The time of the last look at Git is drawn anew once a minute; a look
        that finds nothing is no change.
        """
        self._happened.handle(told)
        if (
            isinstance(told, GitTimed)
            and told.well
            and not 0 <= told.at - self._looked < LOOKS_EVERY
        ):
            self._looked = told.at
            self._move()

    async def commits(self, ids: Sequence[str]) -> Mapping[str, CommitInfo]:
        """What Git says of those that it knows. Git may be at work for long, so later answers come
        as a change.
        """
        for id in ids:
            if id not in self._infos and id not in self._asking:
                self._asking[id] = asyncio.create_task(self._ask(id))
        if waited := [self._asking[id] for id in ids if id in self._asking]:
            await asyncio.wait(waited, timeout=PATIENCE)
        return {id: info for id in ids if (info := self._infos.get(id)) is not None}

    async def _ask(self, id: str) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            found = None
            for one in self._followed():
                if one.history is not None and found is None:
                    with contextlib.suppress(errors.GitopsError):
                        found = await one.history.info(CommitId(id))
            if len(self._infos) >= _KEPT:
                self._infos.clear()
            self._infos[id] = found
            if clock() - began >= PATIENCE:  # who asked went on without
                self._move()
        finally:
            del self._asking[id]

    async def changed(self, version: int) -> None:
        """Returns as soon as the version is another."""
        while self._version == version:
            await self._moved.wait()

    def _move(self) -> None:
        self._version += 1
        self._moved.set()
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Follows the tracker until it is cancelled."""
        async for _ in self._tracker.changed():
            # what Git didn't know it may know by now
            self._infos = {id: info for id, info in self._infos.items() if info}
            self._move()

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Runs meanwhile."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            for one in (task, *self._asking.values()):
                one.cancel()


def page(shown: Shown, settings: PageSettings) -> Routes:
    """The routes of the page under settings that `served_at` gave. Raises UsageError for a token
    that is not usable.
    """
    assert settings.access is not None
    kind = AccessKind(settings.access)
    token = PageToken(Path(settings.token_file)) if kind is AccessKind.TOKEN else None
    return routes.routes(
        shown,
        PageGuard(kind, token, settings.user_header, access.networks(settings.trusted_proxies)),
    )


@contextlib.asynccontextmanager
async def beside(settings: PageSettings, shown: Shown) -> AsyncIterator[Routes]:
    """The page's routes, kept current meanwhile. Raises UsageError for a token that is not usable."""
    found = page(shown, settings)
    async with shown.followed():
        yield found
