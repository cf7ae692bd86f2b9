"""The content of the page, from the caches of the service: agents, events, Git. A request for the
page sends no request to the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.events.base import Event, WatchFailed
from gitops_ds.core.events.commits import ReportsRead
from gitops_ds.core.events.deployer import GitTimed
from gitops_ds.core.events.drift import DriftEvent
from gitops_ds.core.events.startup_taints import NodeEvent
from gitops_ds.core.objects import Body, CommitId, Key, short
from gitops_ds.core.sources.bundle import Manifest, Pool
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.startup_taints import NodeWait
from gitops_ds.notify import log_lines
from gitops_ds.service.settings.listen import PageSettings
from gitops_ds.service.web.page import access, routes
from gitops_ds.service.web.page.access import AccessKind, PageGuard, PageToken
from gitops_ds.service.web.page.view import PageEvent
from gitops_ds.service.web.server import Routes
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow
from gitops_ds.status.tracker import StatusTracker

if TYPE_CHECKING:  # a controller without repositories does not import Git
    from gitops_ds.source.git.repository import Repository

KEPT = 500


class EventFeed:
    """The last `kept` lines. `changed` is called after each new one."""

    def __init__(self, changed: Callable[[], None] = lambda: None, kept: int = KEPT) -> None:
        self._events: deque[PageEvent] = deque(maxlen=kept)
        self._changed = changed

    def handle(self, event: Event) -> None:
        """Adds the event, unless it has no text or the page omits its kind."""
        text = log_lines.line(event)
        if text is None or not event.definition.on_page:
            return
        about = None if isinstance(event, DriftEvent) else event.about
        commit = str(getattr(event, "commit", None) or "")
        words = _without_repeats(event, text, commit)
        line = PageEvent(event.at, event.definition.kind, words, event.tone, about, commit)
        self._events.appendleft(line)
        self._changed()

    def events(self) -> Sequence[PageEvent]:
        """The lines, newest first."""
        return tuple(self._events)


def _without_repeats(event: Event, text: str, commit: str) -> str:
    """The text without the content of the other columns: level, reason, and object or commit."""
    about = str(event.about or "")
    text = text.removeprefix("warning: ").removeprefix("not applied: ")
    text = text.removeprefix(f"{about}: ").removeprefix(f"{event.kube_reason} ")
    if event.about is None and commit:
        return text.removeprefix("new ").removeprefix(f"commit {short(commit)} ")
    return text if text.startswith(about) else text.replace(f" {about}", "", 1)


PATIENCE = 0.02  # seconds that a page waits for Git; later replies update it
POLL_UPDATES_EVERY = 60.0  # seconds between updates of the time of the last poll
_KEPT = 5_000  # commits whose author and subject are cached


class RepositoryView(msgspec.Struct, frozen=True):
    """One repository: the manifests of its commit, and its history if it is available. `cluster` is
    the name of the cluster in it, empty without one.
    """

    manifests: Mapping[Key, Manifest] = msgspec.field(default_factory=dict)
    history: Repository | None = None
    pools: Sequence[Pool] = ()
    status: SourceStatus | None = None
    clusters: Sequence[ClusterRow] = ()
    cluster: str = ""


class Shown:
    """The view of a service; `cluster` is the cluster's name in the settings, empty for that of the
    repositories; `followed` returns the current view of each repository, `clock` the
    seconds since 1970, `waits` the nodes that wait for agents, by name.
    """

    def __init__(
        self,
        cluster: str,
        tracker: StatusTracker,
        followed: Callable[[], Iterable[RepositoryView]],
        clock: Callable[[], float] = time.time,
        waits: Callable[[], Mapping[str, NodeWait]] = dict,
    ) -> None:
        self.now, self.waits = clock, waits
        self._watch_failure = ""
        self._cluster, self._tracker, self._followed = cluster, tracker, followed
        self._version, self._moved = 1, asyncio.Event()
        self._feed = EventFeed(self._move)
        self._last_poll = 0.0
        self._infos: dict[str, CommitInfo | None] = {}
        self._requests: dict[str, asyncio.Task[None]] = {}

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        names = (self._cluster, *(deployer.cluster for deployer in self._followed()), "cluster")
        return next(filter(None, names))

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    @property
    def unread(self) -> str:
        """Why the cluster is not read yet, with the error of the last watch that failed."""
        why = self._tracker.observer.unready
        return why and (self._watch_failure or why)

    def agents(self) -> Sequence[Agent]:
        """Every DaemonSet."""
        return self._tracker.agents()

    def wanted(self, key: Key) -> Body | None:
        """The manifest of the first repository that has the object."""
        return next(
            (
                deployer.manifests[key].body
                for deployer in self._followed()
                if key in deployer.manifests
            ),
            None,
        )

    def pools(self) -> Sequence[Pool]:
        """The pools of the first repository with pools."""
        return next((deployer.pools for deployer in self._followed() if deployer.pools), ())

    def sources(self) -> Sequence[SourceStatus]:
        """The status of each followed repository."""
        return tuple(
            deployer.status for deployer in self._followed() if deployer.status is not None
        )

    def clusters(self) -> Sequence[ClusterRow]:
        """The clusters of the first repository with an order."""
        return next((deployer.clusters for deployer in self._followed() if deployer.clusters), ())

    def events(self) -> Sequence[PageEvent]:
        """The latest events, newest first."""
        return self._feed.events()

    def handle(self, event: Event) -> None:
        """Adds an event. A poll without a new commit updates the page at most once a minute."""
        self._feed.handle(event)
        if isinstance(event, WatchFailed):
            self._watch_failure = f"{event.resource.plural}: {event.error}"
        if isinstance(event, ReportsRead | WatchFailed | NodeEvent):
            self._move()
        if (
            isinstance(event, GitTimed)
            and event.well
            and not 0 <= event.at - self._last_poll < POLL_UPDATES_EVERY
        ):
            self._last_poll = event.at
            self._move()

    async def commits(self, ids: Sequence[str]) -> Mapping[str, CommitInfo]:
        """The metadata of the commits that Git has returned within PATIENCE; later replies change
        the version.
        """
        for id in ids:
            if id not in self._infos and id not in self._requests:
                self._requests[id] = asyncio.create_task(self._request(id))
        if pending := [self._requests[id] for id in ids if id in self._requests]:
            await asyncio.wait(pending, timeout=PATIENCE)
        return {id: info for id in ids if (info := self._infos.get(id)) is not None}

    async def _request(self, id: str) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            info = None
            for deployer in self._followed():
                if deployer.history is not None and info is None:
                    with contextlib.suppress(errors.GitopsError):
                        info = await deployer.history.info(CommitId(id))
            if len(self._infos) >= _KEPT:
                self._infos.clear()
            self._infos[id] = info
            if clock() - began >= PATIENCE:  # the page was rendered without it
                self._move()
        finally:
            del self._requests[id]

    async def changed(self, version: int) -> None:
        """Returns as soon as the version differs."""
        while self._version == version:
            await self._moved.wait()

    def _move(self) -> None:
        self._version += 1
        self._moved.set()
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Follows the tracker until it is cancelled."""
        async for _ in self._tracker.changed():
            # a missing commit may be fetched by now
            self._infos = {id: info for id, info in self._infos.items() if info}
            self._move()

    async def _first_lists(self) -> None:
        """Updates the page when the cluster is read: it may have no agent whose change does."""
        await self._tracker.observer.synced.wait()
        self._move()

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Runs inside."""
        tasks = asyncio.create_task(self.run()), asyncio.create_task(self._first_lists())
        try:
            yield
        finally:
            for task in (*tasks, *self._requests.values()):
                task.cancel()


def page(shown: Shown, settings: PageSettings) -> Routes:
    """The routes of the page, for settings from `served_at`. Raises UsageError for an invalid
    token.
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
    """The page's routes, kept up to date inside. Raises UsageError for an invalid token."""
    page_routes = page(shown, settings)
    async with shown.followed():
        yield page_routes
