"""The deployer of one repository, put together from the settings: only a service that follows a repository loads this."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from gitops_ds import errors
from gitops_ds.app import repositories
from gitops_ds.controller import events, state, sync
from gitops_ds.controller.deploy import Place
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.deployment import PassFailed
from gitops_ds.model.objects import CONFIG_MAP, CommitId
from gitops_ds.model.record import Emit
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.pipeline import prepare
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.report.events import About
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.settings.service import Service
from gitops_ds.source import address, revision
from gitops_ds.source.credentials import Credentials, Login, OwnSsh, Password, SshKey
from gitops_ds.source.limits import DEFAULT, Limits
from gitops_ds.source.repository import Repository


class Stopped(Exception):
    """Asked to stop before the first look at Git came to its end."""


@contextlib.asynccontextmanager
async def deployer(
    service: Service, cluster: Cluster, tell: Emit, at_desk: bool, stopping: asyncio.Event
) -> AsyncIterator[sync.Loop]:
    """The loop, not yet running, with its schedule. Raises Stopped, and GitopsError where a person has to help."""
    settings = service.repository
    where = address.parse(settings.url, allow_local=at_desk or settings.allow_local)
    wanted = revision_of(settings)
    limits = Limits(
        seconds=settings.timeout,
        bytes=settings.limits.get("bytes", DEFAULT.bytes),
        files=settings.limits.get("files", DEFAULT.files),
        file_bytes=settings.limits.get("fileBytes", DEFAULT.file_bytes),
    )
    own = credentials_of(settings, where, at_desk)
    async with Repository(where, repositories.cache_directory(), own, limits, service.allowed) as repository:

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
        async with events.beside(cluster, state_object, tell) as emit:
            loop = sync.Loop(source, place, service.apply, emit, timing)
            schedule = _schedule(settings, loop)
            try:
                yield loop
            finally:
                schedule.shutdown(wait=False)


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


async def _first(
    repository: Repository, wanted: revision.Revision, snapshot: Callable[[CommitId], Awaitable[Snapshot]]
) -> Snapshot:
    return await snapshot(await repository.tip(wanted))


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
    raise Stopped


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
