"""The status of commits on a forge: what `telling_stages` finds due, posted, and remembered so that
it is never said twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Set
from dataclasses import dataclass, replace
from typing import Protocol

from gitops_ds import __version__, errors
from gitops_ds.fleet import agents as fleet_agents
from gitops_ds.fleet.agents import Agent
from gitops_ds.forges.access import ForgeAccess, ForgeToken
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import CommitStatus
from gitops_ds.git.address import Address
from gitops_ds.model.backoff import Backoff
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.events.notifications import NotificationFailed, NotificationSent
from gitops_ds.model.objects import Key
from gitops_ds.redaction.report import ReportSecrets
from gitops_ds.service import forge_discovery, git_auth
from gitops_ds.service.forge_discovery import DiscoveredForge, NamedForge
from gitops_ds.service.notifications.commit_progress import (
    CommitProgress,
    CommitStage,
    CommitTracker,
)
from gitops_ds.service.notifications.outbox import Outbox
from gitops_ds.settings.notify import ForgeSettings

GATHER = 1.0  # seconds: what changes together is said at once
PATIENCE = 60.0  # seconds for one status
BACKOFF = Backoff(10.0, 600.0)
_HEARD = 10_000  # records, while a forge is away
TOKEN = "repository.forge.tokenFile"  # noqa: S105  the name of a setting


class AgentSource(Protocol):
    """How agents stand, as far as it is read here (`gitops_ds.fleet.tracker.Standings`)."""

    def agents(self) -> tuple[Agent, ...]:
        """All of them."""
        ...

    def changed(self) -> AsyncIterator[Set[Key]]:
        """Whose standing changes, from now on."""
        ...


@dataclass(frozen=True, slots=True)
class FollowedCommits:
    """What a deployer knows once it has begun: the id of its objects' owner, its cluster's name,
    the agents that Git names.
    """

    owner: str
    cluster: str
    wanted: Set[Key]


@dataclass(frozen=True, slots=True)
class StatusRepository:
    """Whose commits they are: its name here, its address, the cluster's name by the settings, and
    how a status' name ends.
    """

    name: str
    where: Address
    forge: ForgeSettings
    cluster: str = ""
    suffix: str = ""


class CommitStatusPublisher:
    """Posts the stages of one repository's commits while `run` runs."""

    def __init__(
        self, repository: StatusRepository, tell: Emit, retry: float = BACKOFF.first
    ) -> None:
        """Raises SettingsError where it can't be told where the forge is. `retry` is in seconds,
        and doubles each time.
        """
        self.repository, self._tell = repository, tell
        self._place = place(repository.where, repository.forge)
        self._heard: deque[Event] = deque(maxlen=_HEARD)
        self._courses: CommitTracker | None = None
        self._news = asyncio.Event()
        self._complaint, self._failures = "", 0
        self._backoff = replace(BACKOFF, first=retry)
        self.followed: Callable[[], FollowedCommits | None] = lambda: None

    def handle(self, told: Event) -> None:
        """What the repository's deployer tells."""
        self._heard.append(told)
        self._news.set()

    async def run(self, memory: Outbox, tracker: AgentSource, changed: Callable[[], None]) -> None:
        """Posts until it is cancelled; `changed` is called when the forge shows another stage."""
        known = memory.commits.setdefault(self.repository.name, {})
        courses = self._courses = CommitTracker(known)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake(tracker))
            while True:
                await self._news.wait()
                await asyncio.sleep(GATHER)
                self._news.clear()
                while self._heard:
                    courses.handle(self._heard.popleft())
                for course, stage in self._due(courses, tracker):
                    if not await self._post(course, stage):
                        break
                    memory.note(self.repository.name, course.commit, stage)
                    courses.note(course, stage)
                    changed()

    def forget(self) -> None:
        """What was heard and not yet looked at: another leads now."""
        self._heard.clear()
        self._courses = None

    async def _wake(self, tracker: AgentSource) -> None:
        async for _ in tracker.changed():
            if self._courses is not None and self._courses.open:
                self._news.set()

    def _due(
        self, courses: CommitTracker, tracker: AgentSource
    ) -> list[tuple[CommitProgress, CommitStage]]:
        followed = self.followed()
        if followed is None or not courses.open:
            return []
        own = [
            agent for agent in tracker.agents() if fleet_agents.owner(agent.seen) == followed.owner
        ]
        return courses.due(own, followed.wanted)

    async def _post(self, course: CommitProgress, stage: CommitStage) -> bool:
        """Whether the forge took it."""
        name = f"commit status of {self.repository.name}"
        status = CommitStatus(
            self._name(), stage.state, ReportSecrets().within(" ".join(stage.words.split()))
        )
        try:
            async with Forge(self._access(), PATIENCE, f"gitops-ds/{__version__}") as forge:
                await forge.status(course.commit, status)
        except errors.GitopsError as error:
            if str(error) != self._complaint:
                self._tell(NotificationFailed(time.time(), name, str(error)))
            self._complaint = str(error)
            self._failures += 1
            await asyncio.sleep(self._backoff.delay(self._failures))
            self._news.set()
            return False
        self._complaint, self._failures = "", 0
        self._tell(NotificationSent(time.time(), name, 1))
        return True

    def _access(self) -> ForgeAccess:
        """Raises SettingsError."""
        return ForgeAccess(
            self._place.kind,
            self._place.url,
            ForgeToken(TOKEN, token(self.repository.forge)),
            self._place.project,
        )

    def _name(self) -> str:
        """`gitops-ds/CLUSTER`: one for each cluster that follows the repository."""
        followed = self.followed()
        known = followed.cluster if followed else ""
        return "/".join(
            filter(None, ("gitops-ds", self.repository.cluster or known, self.repository.suffix))
        )


def token(forge: ForgeSettings) -> str:
    """What is in the file now. Raises SettingsError."""
    try:
        found = git_auth.read(TOKEN, forge.token_file).decode("ascii").strip()
    except UnicodeDecodeError:
        found = ""
    if not found or not found.isprintable() or " " in found:
        raise errors.SettingsError(f"{TOKEN}: {forge.token_file} holds no token")
    return found


def place(where: Address, forge: ForgeSettings) -> DiscoveredForge:
    """The forge. Raises SettingsError where that does not follow from the repository's address."""
    try:
        return forge_discovery.find(
            where, NamedForge(forge.kind, forge.url, forge.project, forge.allow_http)
        )
    except errors.UsageError as error:
        told = str(error).replace("--url", "url").replace("--allow-http", "allowHttp")
        raise errors.SettingsError(f"repository.forge: {told}") from None
