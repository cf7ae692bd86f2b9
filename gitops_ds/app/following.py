"""The deployer of one repository, put together from the settings: only a service that follows a repository loads this."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
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


@dataclass(frozen=True, slots=True)
class Around:
    """What the repositories of a service share. `owners` are the ids under which they own objects, each with its repository."""

    service: Service
    cluster: Cluster
    tell: Emit
    at_desk: bool
    owners: dict[str, str] = field(default_factory=dict)


class Following:
    """One repository, followed as long as `run` runs; its `loop` begins when the first look has told under which id.

    A repository that can't be read is told, and looked at again; it holds up nobody else.
    """

    def __init__(self, around: Around, settings: RepositorySettings) -> None:
        """Raises SettingsError, also for a file of credentials that can't be read."""
        self._around, self._settings = around, settings
        self._where = address.parse(settings.url, allow_local=around.at_desk or settings.allow_local)
        self._wanted = revision_of(settings)
        self._credentials = credentials_of(settings, self._where, around.at_desk)
        self._stopping = asyncio.Event()
        self._looked = False
        self.loop: sync.Loop | None = None

    @property
    def unready(self) -> str:
        """Why nothing of it was applied or seen yet; nothing after the first look, also one that failed."""
        over = self.loop.first_pass.is_set() if self.loop else self._looked
        return "" if over else f"the first pass of {self._where.display} is not over"

    def stop(self) -> None:
        """Ends `run` after the pass that goes on."""
        self._stopping.set()
        if self.loop is not None:
            self.loop.stop()

    async def run(self) -> None:
        """Looks at Git until that is possible, and then runs the loop. Raises GitopsError where only a person can help."""
        own = self._credentials
        limits = limits_of(self._settings)
        allowed = self._around.service.allowed
        async with Repository(self._where, repositories.cache_directory(), own, limits, allowed) as repository:
            first = await self._first_look(repository)
            if first is None:
                return
            async with self._made(repository, first) as self.loop:
                schedule = _schedule(self._settings, self.loop)
                try:
                    await self.loop.run()
                finally:
                    schedule.shutdown(wait=False)

    @contextlib.asynccontextmanager
    async def _made(self, repository: Repository, first: Prepared) -> AsyncIterator[sync.Loop]:
        around, settings, called = self._around, self._settings, repositories.identity(self._where)
        id = state.identity(first.bundle.owner_hint, called, settings.path, first.bundle.cluster.name)
        place = Place(around.cluster, around.service.cluster.namespace, id, called, settings.path)
        whole = " ".join((called, settings.path)).strip()
        if around.owners.setdefault(id, whole) != whole:
            raise errors.SettingsError(f"{whole} and {around.owners[id]} have the same name, {id}: objects have one owner")
        about = About(CONFIG_MAP.api_version, CONFIG_MAP.kind, place.namespace, state.config_map_name(id))
        source = sync.Source(
            lambda: repository.tip(self._wanted), partial(self._snapshot, repository), repository.movement, self._prepared
        )
        async with events.beside(around.cluster, about, around.tell) as emit:
            yield sync.Loop(
                source, place, around.service.apply, emit, sync.Timing(settings.retry_interval, time.time, random.random)
            )

    async def _snapshot(self, repository: Repository, commit: CommitId) -> Snapshot:
        return await repositories.snapshot_of(repository, commit, self._settings.path)

    def _prepared(self, found: Snapshot) -> Prepared:
        return prepare.prepare(found, cluster=self._around.service.cluster.name)

    async def _first_look(self, repository: Repository) -> Prepared | None:
        """The owner's id needs the repository's own name, so this comes before the loop; None when asked to stop meanwhile."""
        said, alone = "", len(self._around.service.repositories) == 1
        while not self._stopping.is_set():
            try:
                return self._prepared(await self._snapshot(repository, await repository.tip(self._wanted)))
            except errors.GitopsError as error:
                if alone and not error.retryable:
                    raise
                if str(error) != said:
                    self._around.tell(PassFailed(time.time(), str(error), self._settings.retry_interval))
                said = str(error)
            self._looked = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._settings.retry_interval)
        return None


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


def limits_of(settings: RepositorySettings) -> Limits:
    """The caps on what is fetched."""
    return Limits(
        seconds=settings.timeout,
        bytes=settings.limits.get("bytes", DEFAULT.bytes),
        files=settings.limits.get("files", DEFAULT.files),
        file_bytes=settings.limits.get("fileBytes", DEFAULT.file_bytes),
    )


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
