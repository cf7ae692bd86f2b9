"""People are told outside of the cluster: a part of the service that hears of every fact, and lets
nobody wait.

Only the leader tells. What waits and what was told is one ConfigMap, written when that changed and
never otherwise: there the next leader, or the next start, goes on. Who is killed between telling
and noting tells once more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import orjson

from gitops_ds import errors
from gitops_ds.deployer.loop import Loop
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.git import address
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.events.agents import AgentEvent
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.events.notifications import CONFIG_MAP_NAME, Notification, NotificationFailed
from gitops_ds.model.objects import CONFIG_MAP
from gitops_ds.pipeline import open_repository
from gitops_ds.service.notifications import outbox
from gitops_ds.service.notifications.commit_status import (
    CommitStatusPublisher,
    FollowedCommits,
    StatusRepository,
)
from gitops_ds.service.notifications.outbox import Outbox
from gitops_ds.service.notifications.sender import Sender, SenderContext
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.settings.service import Service
from gitops_ds.telemetry.notifications import NotificationBuilder

_KEY = "news.json"
SETTLE = 2.0  # seconds after a change until it is written, with what follows
RETRY = 15.0  # seconds
HEARD = 1_000  # pieces of news, while the API server does not answer


class ReadDeployer(Protocol):
    """The part of a deployer that is read (`gitops_ds.service.git_deployer.Following`)."""

    @property
    def loop(self) -> Loop | None:
        """Its loop, when it has begun."""
        ...


class NotificationDispatcher:
    """The part. It takes facts as long as we lead; `run` tells them."""

    unready = ""
    seconds_without_progress = 0.0

    def __init__(
        self, service: Service, cluster: Cluster, tell: Emit, around: SenderContext | None = None
    ) -> None:
        """Raises SettingsError where it can't be told where a forge is."""
        self._service, self._cluster, self._tell = service, cluster, tell
        around = around or SenderContext(service.cluster.name, tell)
        self._tellers = [Sender(one, around) for one in service.notify]
        self._commits: dict[int, CommitStatusPublisher] = {}
        for number, one in enumerate(service.repositories):
            if one.forge is not None:
                self._commits[number] = CommitStatusPublisher(_repository(service, one), tell)
        self._fold = NotificationBuilder()
        self._heard: list[Notification] = []
        self._memory: Outbox | None = None
        self._tracker: StatusTracker | None = None
        self._changed = asyncio.Event()
        self._leading, self._turn = True, asyncio.Event()
        self._stopping = False
        self._complaint = self._written = ""

    def handle(self, told: Event) -> None:
        """What becomes of agents, whoever tells it."""
        if isinstance(told, AgentEvent):
            self._take(told, "")

    def beside(self, tell: Emit, number: int | None) -> Emit:
        """As `tell`, and heard here: for the deployer of that repository of the settings (None: of
        templates in the cluster).
        """
        name = (
            "templates in the cluster"
            if number is None
            else _name(self._service.repositories[number])
        )
        commits = None if number is None else self._commits.get(number)

        def emit(told: Event) -> None:
            tell(told)
            self._take(told, name)
            if commits is not None and self._leading:
                commits.handle(told)

        return emit

    def watch(self, tracker: StatusTracker, deployers: Sequence[ReadDeployer]) -> None:
        """How agents stand, and the deployers of the settings' repositories, in order."""
        self._tracker = tracker
        for number, commits in self._commits.items():
            commits.followed = partial(_followed, deployers[number])

    def _take(self, told: Event, repository: str) -> None:
        item = self._fold.handle(told, repository) if self._leading else None
        if item is not None:
            self._heard.append(item)
            del self._heard[:-HEARD]
            self._spread()

    def _spread(self) -> None:
        """Gives every receiver what it asked for, as soon as it is known what was told before."""
        if self._memory is None:
            return
        heard, self._heard = self._heard, []
        for item in heard:
            wanting = [teller for teller in self._tellers if item.topic in teller.settings.topics]
            if wanting and self._memory.take(item, [teller.settings.name for teller in wanting]):
                self._changed.set()
                for teller in wanting:
                    teller.wake()

    def start_leading(self) -> None:
        """Tells from now on."""
        self._leading = True
        self._turn.set()

    def stop_leading(self) -> None:
        """Tells nothing, for another leads."""
        self._leading = False
        self._heard.clear()
        for commits in self._commits.values():
            commits.forget()
        self._turn.set()

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping = True
        self._turn.set()

    async def run(self) -> None:
        """Tells until `stop`; what is not told then is told by whoever comes next."""
        while not self._stopping:
            self._turn.clear()
            tasks = [asyncio.create_task(self._turn.wait())] + (
                [asyncio.create_task(self._work())] if self._leading else []
            )
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise error
            if self._leading:
                await self._save()
            self._memory = None

    async def _work(self) -> None:
        self._memory = memory = await self._load()
        self._written = orjson.dumps(memory.show()).decode()
        self._spread()
        async with asyncio.TaskGroup() as group:
            for teller in self._tellers:
                group.create_task(teller.run(memory, self._changed.set))
            if self._tracker is not None:
                for commits in self._commits.values():
                    group.create_task(commits.run(memory, self._tracker, self._changed.set))
            group.create_task(self._keep())

    async def _keep(self) -> None:
        """Writes the memory when it changed."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE)
            self._changed.clear()
            if not await self._save():
                await asyncio.sleep(RETRY)
                self._changed.set()

    async def _save(self) -> bool:
        """Whether what is remembered is written now; what was written before is not written again."""
        text = orjson.dumps(self._memory.show()).decode() if self._memory else self._written
        if text == self._written:
            return True
        metadata = {
            "namespace": self._service.cluster.namespace,
            "name": CONFIG_MAP_NAME,
            "labels": {"app.kubernetes.io/managed-by": "gitops-ds"},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_KEY: text}}
        try:
            await self._cluster.apply(CONFIG_MAP, body, manager=names.FIELD_MANAGER, force=True)
        except errors.ClusterError as error:
            self._complain(
                f"it can't be written, and a restart would forget what was told: {error}"
            )
            return False
        self._complaint, self._written = "", text
        return True

    async def _load(self) -> Outbox:
        """What an earlier process left; tried until the API server answers."""
        while True:
            try:
                body = await self._cluster.get(
                    CONFIG_MAP, self._service.cluster.namespace, CONFIG_MAP_NAME
                )
                return outbox.parse(orjson.loads(body["data"][_KEY]))
            except errors.NotFound:
                return Outbox()
            except (KeyError, TypeError, ValueError, AttributeError):
                self._complain("it holds nothing of ours: it is begun anew")
                return Outbox()
            except errors.ClusterError as error:
                self._complain(f"it can't be read, and nothing is told until then: {error}")
                await asyncio.sleep(RETRY)

    def _complain(self, message: str) -> None:
        if message != self._complaint:
            self._tell(NotificationFailed(time.time(), f"ConfigMap {CONFIG_MAP_NAME}", message))
        self._complaint = message


def _followed(deployer: ReadDeployer) -> FollowedCommits | None:
    loop = deployer.loop
    if loop is None:
        return None
    cluster = loop.deployer_state.cluster if loop.deployer_state else ""
    return FollowedCommits(loop.owner, cluster, {key for key in loop.manifests if key.is_daemonset})


def _name(settings: RepositorySettings) -> str:
    where = address.parse(settings.url, allow_local=True)
    return " ".join(filter(None, (open_repository.identity(where), settings.path)))


def _repository(service: Service, settings: RepositorySettings) -> StatusRepository:
    assert settings.forge is not None
    where = address.parse(settings.url, allow_local=True)
    beside = any(one.url == settings.url for one in service.repositories if one is not settings)
    return StatusRepository(
        _name(settings),
        where,
        settings.forge,
        service.cluster.name,
        settings.path if beside else "",
    )
