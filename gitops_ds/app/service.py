"""The service: the scheduled deployer loop and the controller core, put together and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from gitops_ds import errors
from gitops_ds.app import clusters, repositories
from gitops_ds.app.clusters import Connection
from gitops_ds.controller import events, probe, state, sync
from gitops_ds.controller.deploy import Place
from gitops_ds.controller.loop import Controller, Powers
from gitops_ds.journal.files import Journal
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.deployment import PassFailed
from gitops_ds.model.objects import CONFIG_MAP, CommitId
from gitops_ds.model.record import Emit, Record
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.pipeline import prepare
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.report import metrics, web
from gitops_ds.report.events import About
from gitops_ds.settings.service import RepositorySettings, Service
from gitops_ds.source import address, revision
from gitops_ds.source.credentials import Credentials, Login, OwnSsh, Password, SshKey
from gitops_ds.source.limits import DEFAULT, Limits
from gitops_ds.source.repository import Repository

Say = Callable[[str], None]
GRACE = 4.0  # seconds that a pass or a turn has to come to its end


async def run(service: Service, emit: Emit, say: Say, *, at_desk: bool) -> None:
    """Runs until SIGTERM or SIGINT. `at_desk`: local repositories and the person's own ssh are theirs to use.

    Raises GitopsError when it can't begin: wrong settings, no cluster. Later trouble is told and tried again.
    """
    counters = metrics.Metrics()
    hearers = [counters.hear, emit]

    def tell(told: Record) -> None:
        for hear in hearers:
            hear(told)

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    connection = Connection(service.cluster.kubeconfig, service.cluster.context, service.cluster.namespace)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(contextlib.suppress(_Stopped))
        if service.journal.path:
            journal = Journal(Path(service.journal.path), service.journal.limits, tell)
            stack.callback(journal.close)
            hearers.append(journal.hear)
        cluster = await stack.enter_async_context(clusters.opened(connection))
        version = await cluster.version()
        deployer: sync.Loop | None = None

        def ready() -> bool:
            return not service.repository.url or (deployer is not None and deployer.first_pass.is_set())

        if service.listen:
            runner = await web.serve(service.listen, counters, ready)
            stack.push_async_callback(runner.cleanup)
        if service.repository.url:
            deployer = await stack.enter_async_context(_deployer(service, cluster, tell, at_desk, stopping))
        controller = None
        if service.powers is not Powers.PACE:  # no agent has a rollout policy yet, so there is nothing to pace
            if service.powers is Powers.FULL:
                await stack.enter_async_context(probe.only_one(cluster, service.cluster.namespace, time.time))
            hear = await stack.enter_async_context(_with_events(cluster, None, tell))
            controller = Controller(cluster, service.powers, hear, clock=time.time, chance=random.random)
            if service.direct:
                controller.place_directly()
        await _until(stopping, [part for part in (deployer, controller) if part is not None], lambda: say(_ready(service, version)))


async def _until(stopping: asyncio.Event, parts: Sequence[sync.Loop | Controller], begun: Callable[[], None]) -> None:
    """Runs the parts until asked to stop; what is not over some seconds later is cut, for the next start goes on from there."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in parts]
        begun()
        await stopping.wait()
        for part in parts:
            part.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=GRACE)
            for task in late:
                task.cancel()


def _ready(service: Service, version: str) -> str:
    follows = f"following {service.repository.url}" if service.repository.url else "without a repository"
    return f"ready: {follows}, powers {service.powers}, Kubernetes {version}"


def _schedule(settings: RepositorySettings, deployer: sync.Loop) -> AsyncIOScheduler:
    """The job only wishes for a pass and returns, so that a shutdown never cuts one, and a slow one loses no tick."""
    schedule = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None})
    schedule.add_job(
        _wish, "interval", [deployer], seconds=settings.interval, jitter=settings.jitter or None, next_run_time=datetime.now(UTC)
    )
    schedule.start()
    return schedule


async def _wish(deployer: sync.Loop) -> None:
    deployer.ask()


@contextlib.asynccontextmanager
async def _deployer(
    service: Service, cluster: Cluster, tell: Emit, at_desk: bool, stopping: asyncio.Event
) -> AsyncIterator[sync.Loop]:
    settings = service.repository
    where = address.parse(settings.url, allow_local=at_desk or settings.allow_local)
    wanted = revision_of(settings)
    limits = Limits(
        seconds=settings.timeout,
        bytes=settings.limits.get("bytes", DEFAULT.bytes),
        files=settings.limits.get("files", DEFAULT.files),
        file_bytes=settings.limits.get("fileBytes", DEFAULT.file_bytes),
    )
    async with Repository(where, repositories.cache_directory(), credentials_of(settings, where, at_desk), limits) as repository:

        async def snapshot(commit: CommitId) -> Snapshot:
            return await repositories.snapshot_of(repository, commit, settings.path)

        def prepared(found: Snapshot) -> Prepared:
            return prepare.prepare(found, cluster=service.cluster.name)

        # The owner's id needs the repository's own name, so the first look happens before the loop begins.
        first = prepared(await _patiently(lambda: _first(repository, wanted, snapshot), settings.retry_interval, tell, stopping))
        called = repositories.identity(where)
        id = state.identity(first.bundle.owner_hint, called, settings.path, first.bundle.cluster.name)
        place = Place(cluster, service.cluster.namespace, id, called, settings.path)
        source = sync.Source(lambda: repository.tip(wanted), snapshot, repository.movement, prepared)
        timing = sync.Timing(settings.retry_interval, time.time, random.random)
        state_object = About(CONFIG_MAP.api_version, CONFIG_MAP.kind, place.namespace, state.config_map_name(id))
        async with _with_events(cluster, state_object, tell) as emit:
            loop = sync.Loop(source, place, service.apply, emit, timing)
            schedule = _schedule(settings, loop)
            try:
                yield loop
            finally:
                schedule.shutdown(wait=False)


@contextlib.asynccontextmanager
async def _with_events(cluster: Cluster, state_object: About | None, tell: Emit) -> AsyncIterator[Emit]:
    """What is told here also goes to the cluster's own event log."""
    told = events.Events(cluster, state_object)

    def emit(record: Record) -> None:
        tell(record)
        told.hear(record)

    writing = asyncio.create_task(told.run())
    try:
        yield emit
    finally:
        writing.cancel()


async def _first(
    repository: Repository, wanted: revision.Revision, snapshot: Callable[[CommitId], Awaitable[Snapshot]]
) -> Snapshot:
    return await snapshot(await repository.tip(wanted))


class _Stopped(Exception):
    """Asked to stop before the first look at Git came to its end."""


async def _patiently(look: Callable[[], Awaitable[Snapshot]], seconds: float, tell: Emit, stopping: asyncio.Event) -> Snapshot:
    """Looks again as long as Git can't be reached, and says so once; other errors are for a person."""
    said = ""
    while not stopping.is_set():
        try:
            return await look()
        except errors.SourceUnreachable as error:
            if str(error) != said:
                tell(PassFailed(time.time(), str(error), seconds))
            said = str(error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), seconds)
    raise _Stopped


def revision_of(settings: RepositorySettings) -> revision.Revision:
    """What the settings follow; the server's default branch where they name nothing."""
    if not any((settings.commit, settings.ref, settings.semver, settings.tag, settings.branch)):
        return revision.Head()
    return revision.from_settings(
        commit=settings.commit, name=settings.ref, semver=settings.semver, tag=settings.tag, branch=settings.branch
    )


def credentials_of(settings: RepositorySettings, where: address.Address, at_desk: bool) -> Credentials:
    """Those that the settings name files for; at a desk, without any, the person's own."""
    told = settings.credentials
    if not told and at_desk:
        return repositories.credentials(where)
    login: Login | None = where.login
    if "sshKeyFile" in told:
        login = SshKey(_read(told, "sshKeyFile"), _read(told, "knownHostsFile"))
    elif "tokenFile" in told or "passwordFile" in told:
        secret = _read(told, "tokenFile" if "tokenFile" in told else "passwordFile").decode().strip()
        login = Password(secret, told.get("username") or "git")
    elif where.scheme is address.Scheme.SSH:
        login = OwnSsh() if at_desk else None
    return Credentials(login, _read(told, "caFile") if "caFile" in told else b"")


def _read(told: object, name: str) -> bytes:
    file = told.get(name) if isinstance(told, dict) else None
    if not file:
        raise errors.SettingsError(f"repository.credentials.{name} is missing: it names a file")
    try:
        return Path(os.path.expandvars(file)).read_bytes()
    except OSError as error:
        raise errors.SettingsError(f"repository.credentials.{name}: {file}: {error.strerror}") from None
