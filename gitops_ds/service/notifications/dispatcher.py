"""Sends notifications about events to receivers and forges, without delaying their emitters.

Only the leader sends. The outbox is stored in a ConfigMap, which is written after changes only: the
next leader, or the next start, continues from there. Delivery is at least once: a crash between
send and save sends again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import orjson

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.events.agents import AgentEvent
from gitops_ds.core.events.base import Emit, Event
from gitops_ds.core.events.notifications import CONFIG_MAP_NAME, Notification, NotificationFailed
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.objects import CONFIG_MAP
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.kube.client.supervisor import Supervisor
from gitops_ds.notify.notifications import NotificationBuilder
from gitops_ds.service.notifications import outbox
from gitops_ds.service.notifications.commit_status import (
    CommitStatusPublisher,
    FollowedCommits,
    StatusRepository,
)
from gitops_ds.service.notifications.outbox import Outbox
from gitops_ds.service.notifications.sender import Sender, SenderContext
from gitops_ds.service.runnable import DeployerPart
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.service.settings.service import Service
from gitops_ds.source.git import address
from gitops_ds.status.tracker import StatusTracker

_KEY = "news.json"
SETTLE = 2.0  # seconds from a change to the write, which includes the changes meanwhile
RETRY = 15.0  # seconds
PENDING = 1_000  # notifications in memory while the outbox is not loaded


class NotificationDispatcher:
    """The part of the service. It handles events while this replica leads; `run` sends."""

    unready = ""
    seconds_without_progress = 0.0

    def __init__(
        self,
        service: Service,
        cluster: Cluster,
        emit: Emit,
        leadership: Leadership,
        context: SenderContext | None = None,
    ) -> None:
        """Raises SettingsError if the address of a forge does not follow from the settings."""
        self._service, self._cluster, self._emit = service, cluster, emit
        context = context or SenderContext(service.cluster.name, emit)
        self._senders = [Sender(target, context) for target in service.notify]
        self._publishers: dict[str, CommitStatusPublisher] = {}
        for repository in service.repositories:
            if repository.forge is not None:
                publisher = CommitStatusPublisher(_repository(service, repository), emit)
                self._publishers[publisher.repository.name] = publisher
        self._builder = NotificationBuilder()
        self._pending: list[Notification] = []
        self._outbox: Outbox | None = None
        self._tracker: StatusTracker | None = None
        self._changed = asyncio.Event()
        self._leadership, self._turn = leadership, asyncio.Event()
        leadership.listen(self._lead)
        self._stopping = False
        self._last_failure = self._written = ""

    def handle(self, event: Event) -> None:
        """Handles the events of deployers, and those of agents from any part."""
        repository = event.origin.repository
        if repository or isinstance(event, AgentEvent):
            self._take(event, repository)
        publisher = self._publishers.get(repository)
        if publisher is not None and self._leadership.leads:
            publisher.handle(event)

    def watch(self, tracker: StatusTracker, deployers: Sequence[DeployerPart]) -> None:
        """Sets the status of agents, and the deployers of the settings' repositories, in order."""
        self._tracker = tracker
        for settings, deployer in zip(self._service.repositories, deployers, strict=True):
            if settings.forge is not None:
                self._publishers[_name(settings)].followed = partial(_followed, deployer)

    def _take(self, event: Event, repository: str) -> None:
        is_sent = self._leadership.leads
        notification = self._builder.handle(event, repository) if is_sent else None
        if notification is not None:
            self._pending.append(notification)
            del self._pending[:-PENDING]
            self._distribute()

    def _distribute(self) -> None:
        """Queues notifications by the topics of each receiver, once the outbox is loaded."""
        if self._outbox is None:
            return
        pending, self._pending = self._pending, []
        for item in pending:
            senders = [sender for sender in self._senders if item.topic in sender.settings.topics]
            if senders and self._outbox.take(item, [sender.settings.name for sender in senders]):
                self._changed.set()
                for sender in senders:
                    sender.wake()

    def _lead(self, leads: bool) -> None:
        """Starts to send; or stops, as another replica leads."""
        if not leads:
            self._pending.clear()
            for publisher in self._publishers.values():
                publisher.forget()
        self._turn.set()

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping = True
        self._turn.set()

    async def run(self) -> None:
        """Sends until `stop`; the next leader or start sends the rest."""
        while not self._stopping:
            self._turn.clear()
            tasks = [asyncio.create_task(self._turn.wait())] + (
                [asyncio.create_task(self._work())] if self._leadership.leads else []
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
            if self._leadership.leads:
                await self._save()
            self._outbox = None

    async def _work(self) -> None:
        self._outbox = loaded = await self._load()
        self._written = orjson.dumps(loaded.show()).decode()
        self._distribute()
        # An internal error at one receiver, or the forge of one repository, stops no other.
        supervisor = Supervisor(self._emit, time.time)
        async with asyncio.TaskGroup() as group:
            for sender in self._senders:
                run = partial(sender.run, loaded, self._changed.set)
                group.create_task(supervisor.keep(f"receiver {sender.settings.name}", run))
            if self._tracker is not None:
                for name, publisher in self._publishers.items():
                    run = partial(publisher.run, loaded, self._tracker, self._changed.set)
                    group.create_task(supervisor.keep(f"commit statuses of {name}", run))
            group.create_task(self._keep_saved())

    async def _keep_saved(self) -> None:
        """Writes the outbox after changes."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE)
            self._changed.clear()
            if not await self._save():
                await asyncio.sleep(RETRY)
                self._changed.set()

    async def _save(self) -> bool:
        """Writes the outbox if it has changed; whether the ConfigMap is up to date then."""
        text = orjson.dumps(self._outbox.show()).decode() if self._outbox else self._written
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
            self._report(
                f"write failed, so a restart would lose the record of sent notifications: {error}"
            )
            return False
        self._last_failure, self._written = "", text
        return True

    async def _load(self) -> Outbox:
        """The stored outbox; retried until the API server responds."""
        while True:
            try:
                body = await self._cluster.get(
                    CONFIG_MAP, self._service.cluster.namespace, CONFIG_MAP_NAME
                )
                return outbox.parse(orjson.loads(body["data"][_KEY]))
            except errors.NotFound:
                return Outbox()
            except (KeyError, TypeError, ValueError, AttributeError):
                self._report("content is invalid and will be replaced")
                return Outbox()
            except errors.ClusterError as error:
                self._report(f"read failed, so no notification is sent until it succeeds: {error}")
                await asyncio.sleep(RETRY)

    def _report(self, message: str) -> None:
        """Emits a failure once."""
        if message != self._last_failure:
            self._emit(NotificationFailed(time.time(), f"ConfigMap {CONFIG_MAP_NAME}", message))
        self._last_failure = message


def _followed(deployer: DeployerPart) -> FollowedCommits | None:
    loop = deployer.loop
    if loop is None:
        return None
    cluster = loop.deployer_state.cluster if loop.deployer_state else ""
    return FollowedCommits(loop.owner, cluster, {key for key in loop.manifests if key.is_daemonset})


def _name(settings: RepositorySettings) -> str:
    where = address.parse(settings.url, allow_local=True)
    return open_repository.title(where, settings.path)


def _repository(service: Service, settings: RepositorySettings) -> StatusRepository:
    assert settings.forge is not None
    where = address.parse(settings.url, allow_local=True)
    beside = any(
        repository.url == settings.url
        for repository in service.repositories
        if repository is not settings
    )
    return StatusRepository(
        _name(settings),
        where,
        settings.forge,
        service.cluster.name,
        settings.path if beside else "",
    )
