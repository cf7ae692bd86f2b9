"""Publishes the stages of `commit_progress` as commit statuses on a forge, each one once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Set
from typing import Protocol

import msgspec

from gitops_ds import __version__
from gitops_ds.core import errors
from gitops_ds.core.events.base import Emit, Event
from gitops_ds.core.events.notifications import NotificationFailed, NotificationSent
from gitops_ds.core.objects import Key
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.redaction.report import ReportSecrets
from gitops_ds.core.values import replace
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import CommitStatus
from gitops_ds.service.git import forge_discovery
from gitops_ds.service.notifications.commit_progress import (
    CommitProgress,
    CommitStage,
    CommitTracker,
)
from gitops_ds.service.notifications.outbox import Outbox
from gitops_ds.service.settings.repository import ForgeSettings
from gitops_ds.source.git.address import Address
from gitops_ds.status.agents import Agent

GATHER = 1.0  # seconds in which changes are combined
PATIENCE = 60.0  # seconds for one status
BACKOFF = Backoff(10.0, 600.0)
_PENDING = 10_000  # events, while a forge is unreachable


class AgentSource(Protocol):
    """The status of agents (`gitops_ds.status.tracker.StatusTracker`)."""

    def agents(self) -> tuple[Agent, ...]:
        """All agents."""
        ...

    def changed(self) -> AsyncIterator[Set[Key]]:
        """The agents whose status changes, from now on."""
        ...


class FollowedCommits(msgspec.Struct, frozen=True):
    """A started deployer: the id of its objects' owner, its cluster's name, the agents in Git."""

    owner: str
    cluster: str
    agents: Set[Key]


class StatusRepository(msgspec.Struct, frozen=True):
    """The repository of the commits: its name, its address, the cluster's name in the settings, and
    the suffix of a status' name.
    """

    name: str
    where: Address
    forge: ForgeSettings
    cluster: str = ""
    suffix: str = ""


class CommitStatusPublisher:
    """Publishes the stages of one repository's commits while `run` runs."""

    def __init__(
        self,
        repository: StatusRepository,
        emit: Emit,
        retry: float = BACKOFF.first,
        gather: float = GATHER,
    ) -> None:
        """`retry` is in seconds, and doubles each time. Raises SettingsError if the address of the
        forge does not follow from the settings.
        """
        self.repository, self._emit = repository, emit
        forge_discovery.of_settings(repository.where, repository.forge)
        self._pending: deque[Event] = deque(maxlen=_PENDING)
        self._commits: CommitTracker | None = None
        self._changed = asyncio.Event()
        self._last_failure, self._failures = "", 0
        self._backoff, self._gather = replace(BACKOFF, first=retry), gather
        self.followed: Callable[[], FollowedCommits | None] = lambda: None

    def handle(self, event: Event) -> None:
        """Queues an event of the repository's deployer."""
        self._pending.append(event)
        self._changed.set()

    async def run(self, outbox: Outbox, tracker: AgentSource, changed: Callable[[], None]) -> None:
        """Publishes until it is cancelled; `changed` is called after each published stage."""
        stages = outbox.commits.setdefault(self.repository.name, {})
        commits = self._commits = CommitTracker(stages)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake(tracker))
            while True:
                await self._changed.wait()
                await asyncio.sleep(self._gather)
                self._changed.clear()
                while self._pending:
                    commits.handle(self._pending.popleft())
                for progress, stage in self._due(commits, tracker):
                    if not await self._post(progress, stage):
                        break
                    outbox.note(self.repository.name, progress.commit, stage)
                    commits.note(progress, stage)
                    changed()

    def forget(self) -> None:
        """Drops queued events: another replica leads."""
        self._pending.clear()
        self._commits = None

    async def _wake(self, tracker: AgentSource) -> None:
        async for _ in tracker.changed():
            if self._commits is not None and self._commits.open:
                self._changed.set()

    def _due(
        self, commits: CommitTracker, tracker: AgentSource
    ) -> list[tuple[CommitProgress, CommitStage]]:
        followed = self.followed()
        if followed is None or not commits.open:
            return []
        own = [agent for agent in tracker.agents() if agent.owner == followed.owner]
        return commits.due(own, followed.agents)

    async def _post(self, progress: CommitProgress, stage: CommitStage) -> bool:
        """Whether the forge accepted the status; else after a delay."""
        name = f"commit status of {self.repository.name}"
        status = CommitStatus(
            self._name(), stage.state, ReportSecrets().within(" ".join(stage.words.split()))
        )
        try:
            access = forge_discovery.access_of(self.repository.where, self.repository.forge)
            async with Forge(access, PATIENCE, f"gitops-ds/{__version__}") as forge:
                await forge.status(progress.commit, status)
        except errors.GitopsError as error:
            if str(error) != self._last_failure:
                self._emit(NotificationFailed(time.time(), name, str(error)))
            self._last_failure = str(error)
            self._failures += 1
            await asyncio.sleep(self._backoff.delay(self._failures))
            self._changed.set()
            return False
        self._last_failure, self._failures = "", 0
        self._emit(NotificationSent(time.time(), name, 1))
        return True

    def _name(self) -> str:
        """`gitops-ds/CLUSTER`: one for each cluster that follows the repository."""
        followed = self.followed()
        cluster = followed.cluster if followed else ""
        return "/".join(
            filter(None, ("gitops-ds", self.repository.cluster or cluster, self.repository.suffix))
        )
