"""The deployer of one repository, put together from the settings: only a service that follows a
repository loads this.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial

from gitops_ds import errors
from gitops_ds.checks.engine import check
from gitops_ds.client.supervisor import ended
from gitops_ds.deployer import (
    loop as deployer_loop,
)
from gitops_ds.deployer import (
    requests,
    revision_selector,
    source_status_store,
    state_store,
)
from gitops_ds.deployer.object_claims import Claims, Rank
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.git import address, revision
from gitops_ds.git.repository import Repository
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.control_requests import Push
from gitops_ds.model.deployment import DeployerState
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.events.deployer import NewCommit, ReconcileFailed
from gitops_ds.model.events.requests import PushForwarded
from gitops_ds.model.objects import CONFIG_MAP, CommitId, Digest
from gitops_ds.model.repository_limits import DEFAULT, RepositoryLimits
from gitops_ds.model.signatures import Mode, Unverified, Verified
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.model.source_status import SourceStatus
from gitops_ds.pipeline import open_repository
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.sandbox import memory
from gitops_ds.service import event_recorder, git_auth, git_schedule, prepare_process, runnable
from gitops_ds.service.adaptive_poll import PollInterval
from gitops_ds.service.prepare_worker import Job
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.settings.service import Service
from gitops_ds.telemetry.kube_events import InvolvedObject


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What the repositories of a service share. `owners` are the ids under which they own objects,
    each with its repository.

    `free` is the cluster without the fence: for a word to the leader alone.
    """

    service: Service
    cluster: Cluster
    free: Cluster
    tell: Emit
    at_desk: bool
    owners: dict[str, str] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    fetching: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(memory.here().fetches)
    )
    preparing: prepare_process.Preparing = field(
        default_factory=lambda: prepare_process.Preparing(memory.here())
    )


class GitDeployer(runnable.DeployerPart):
    """One repository, followed as long as `run` runs; its `loop` begins when the first look has
    told under which id.

    A repository that can't be read is told, and looked at again; it holds up nobody else. Meanwhile
    the commit that was applied last is kept applied, if the local copy has it.
    """

    def __init__(self, around: ServiceContext, settings: RepositorySettings) -> None:
        """Raises UsageError for an address or a `match` that is none."""
        self._around, self._settings = around, settings
        self._trigger = git_schedule.trigger_of(settings)
        self._polling = PollInterval(settings.interval, time.monotonic)
        self._where = address.parse(
            settings.url, allow_local=around.at_desk or settings.allow_local
        )
        self._wanted = revision_of(settings)
        secrets = git_auth.ClusterSecrets(
            around.cluster, around.service.cluster.namespace, time.time
        )
        self._keyring = git_auth.Keyring(settings, self._where, secrets, at_desk=around.at_desk)
        self._stopping = asyncio.Event()
        self._telling: set[asyncio.Task[None]] = set()
        self.repository: Repository | None = None
        self._looked = False
        self._first_error: errors.GitopsError | None = None
        # by the state in the cluster: the owner's id and the last good commit
        self._last: tuple[str, CommitId | None] = ("", None)
        self._since = time.time()
        self._clean: Mapping[str, Set[Digest]] = {}

    @property
    def unready(self) -> str:
        """Why nothing of it was applied or seen yet; nothing after the first look, also one that
        failed.
        """
        over = self.loop.first_reconciliation.is_set() if self.loop else self._looked
        return "" if over else f"the first pass of {self._where.display} is not over"

    @property
    def status(self) -> SourceStatus | None:
        """As of the loop; before it has begun, why it has not."""
        if self.loop is not None or self._first_error is None or not self._leading:
            return super().status
        condition, (id, applied) = source_status_store.of_error(self._first_error), self._last
        return SourceStatus(
            id,
            self._where.display,
            followed(self._settings),
            condition,
            str(self._first_error),
            applied=applied,
            since=self._since,
        )

    @property
    def settings(self) -> RepositorySettings:
        """Its own."""
        return self._settings

    @property
    def id(self) -> str:
        """The owner's id, and so the name of its state; empty before the first look."""
        return self.loop.owner if self.loop else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """What the repository may be called by whoever tells of it."""
        return tuple(dict.fromkeys((self._where.display, open_repository.identity(self._where))))

    def wake(self, push: Push) -> None:
        """Somebody pushed: looks now, or has the leader look."""
        self._polling.webhook_received()
        if self.loop is None:
            return
        self.loop.expect(push.commit)
        if not self._leading:
            place = (self._around.service.cluster.namespace, self.id)
            told = asyncio.create_task(
                requests.forward_push(self._around.free, place, push, time.time())
            )
            self._telling.add(told)
            told.add_done_callback(self._telling.discard)

    def _tick(self) -> None:
        # A crontab says when; an interval only how often at most.
        if self.loop is not None and (self._settings.schedule or self._polling.due()):
            self.loop.request()

    def _hear(self, told: Event) -> None:
        match told:
            case NewCommit():
                self._polling.commit_found()
            case PushForwarded():
                self._polling.webhook_received()
            case _:
                pass
        self._around.tell(told)

    def stop(self) -> None:
        """Ends `run` after the pass that goes on."""
        self._stopping.set()
        if self.loop is not None:
            self.loop.stop()

    async def run(self) -> None:
        """Looks at Git until that is possible, and then runs the loop. Raises GitopsError where
        only a person can help.
        """
        own = self._keyring
        limits = limits_of(self._settings)
        allowed = self._around.service.allowed
        room, cache = self._around.fetching, open_repository.cache_directory()
        async with Repository(self._where, cache, own, limits, allowed, room=room) as repository:
            self.repository = repository
            first = await self._first_look(repository)
            if first is None:
                return
            async with self._made(repository, first) as loop:
                self.loop = loop
                schedule = git_schedule.Schedule(self._trigger, self._tick)
                try:
                    await loop.run()
                finally:
                    schedule.shutdown()

    @contextlib.asynccontextmanager
    async def _made(
        self, repository: Repository, first: Prepared
    ) -> AsyncIterator[deployer_loop.Loop]:
        around, settings, called, id = (
            self._around,
            self._settings,
            open_repository.identity(self._where),
            self._owner(first),
        )
        place = DeployTarget(
            around.cluster, around.service.cluster.namespace, id, called, settings.path
        )
        whole = " ".join((called, settings.path)).strip()
        if around.owners.setdefault(id, whole) != whole:
            raise errors.SettingsError(
                f"{whole} and {around.owners[id]} have the same name, {id}: objects have one owner"
            )
        about = InvolvedObject(
            CONFIG_MAP.api_version,
            CONFIG_MAP.kind,
            place.namespace,
            state_store.config_map_name(id),
        )
        source = revision_selector.RevisionSource(
            lambda: repository.tip(self._wanted),
            partial(self._snapshot, repository),
            repository.movement,
            partial(self._prepared, repository),
            partial(self._verify, repository),
            partial(self._verify_kept, repository),
            follows_rewrites=settings.verify.follows_rewrites,
            branch=followed(settings),
        )
        async with event_recorder.recorded(around.cluster, about, self._hear) as emit:
            timing = deployer_loop.LoopTiming(settings.retry_interval, time.time, random.random)
            loop = deployer_loop.Loop(
                source, place, around.service.apply_options_of(settings), emit, timing
            )
            loop.join(around.claims, Rank.GIT)
            yield loop

    async def _snapshot(self, repository: Repository, commit: CommitId) -> Snapshot:
        """What Git says of the commit, which is fetched by then; its files are read by the process
        that prepares it.
        """
        await repository.fetch(commit)
        return Snapshot(await repository.info(commit), {})

    async def _verify(
        self, repository: Repository, tip: CommitId, since: CommitId | None
    ) -> Verified | Unverified | None:
        """Whether the tip may be read. The keys are read each time, so that one that is added
        counts at once.
        """
        trust = git_auth.trust_of(self._settings)
        if trust.mode is Mode.NONE:
            return None
        await repository.fetch(tip)
        if since is not None:
            # the old line was removed from the server, which `verify` tells
            with contextlib.suppress(errors.RevisionUnknown):
                await repository.fetch(since)
        return await repository.verify(self._wanted, tip, since, trust)

    async def _verify_kept(
        self, repository: Repository, commit: CommitId
    ) -> Verified | Unverified | None:
        """Whether the last good commit may be read: its own signature, or that of a tag that names
        it.
        """
        trust = git_auth.trust_of(self._settings)
        if trust.mode is Mode.NONE:
            return None
        await repository.fetch(commit)
        return await repository.verify_kept(self._wanted, commit, trust)

    async def _trusted(self, repository: Repository) -> CommitId:
        """The newest commit that may be read, where the tip is not."""
        tip = await repository.tip(self._wanted)
        found = await self._verify(repository, tip, None)
        if not isinstance(found, Unverified):
            return tip
        trust = git_auth.trust_of(self._settings)
        if newest := await repository.newest_verified(self._wanted, tip, trust):
            return newest
        raise errors.SourceUntrusted(f"{self._where.display}: {found.message}")

    async def _prepared(self, repository: Repository, found: Snapshot) -> Prepared:
        """Most of a commit is what it was before: what nothing was said about then is not judged
        again.
        """
        assert found.commit is not None
        prepared = await self._around.preparing.prepared(self._job(repository, found.commit.id))
        if prepared.deployable:
            self._clean = {check.circumstances(prepared.bundle): prepared.clean}
        return prepared

    def _job(self, repository: Repository, commit: CommitId) -> Job:
        return Job(
            where=repository.address,
            cache=open_repository.cache_directory(),
            limits=limits_of(self._settings),
            allowed=repository.allowed,
            commit=commit,
            path=self._settings.path,
            cluster=self._around.service.cluster.name,
            clean=self._clean,
        )

    async def _named(self, repository: Repository) -> Prepared:
        """The newest commit that may be read, as far as it tells the owner's id."""
        commit = await self._trusted(repository)
        await repository.fetch(commit)
        return await self._identified(repository, commit)

    async def _identified(self, repository: Repository, commit: CommitId) -> Prepared:
        found = await self._around.preparing.prepared(
            replace(self._job(repository, commit), identity_only=True)
        )
        if heavy := next(
            (finding for finding in found.findings if finding.rule == prepare_process.RULE), None
        ):
            raise errors.CommitTooHeavy(f"{self._where.display}: {heavy.message}")
        return found

    def _owner(self, named: Prepared) -> str:
        called = open_repository.identity(self._where)
        return state_store.identity(
            named.bundle.owner_hint, called, self._settings.path, named.bundle.cluster.name
        )

    async def _named_or_applied(self, repository: Repository) -> Prepared:
        """As `_named`; while Git does not give that commit, the one that was applied last."""
        try:
            return await self._named(repository)
        except errors.SourceError as error:
            if self._ends_the_start(error):
                raise
            if applied := await self._applied(repository, error):
                return applied
            raise

    async def _applied(self, repository: Repository, error: errors.SourceError) -> Prepared | None:
        """The commit that the state in the cluster names, from the local copy, as far as it tells
        the owner's id.

        None where nothing was applied. Raises SourceUnreachable and SourceUntrusted, with the error
        of Git, where the commit is not in the local copy or may not be read.
        """
        called, refused, states = (
            open_repository.identity(self._where),
            dict[str, errors.SourceError](),
            dict[str, DeployerState](),
        )
        with contextlib.suppress(errors.ClusterError):  # Git's error is what is told
            states |= await state_store.known(
                self._around.cluster, self._around.service.cluster.namespace
            )
        for id, known in states.items():
            commit = known.last_attempted
            if known.repository != called or commit is None:
                continue
            self._last = (id, known.last_good)
            if not await repository.has(commit):
                lost = (
                    f"commit {commit[:12]}, which was applied last, is not in the local copy, so "
                    "nothing is corrected"
                )
                refused[id] = errors.SourceUnreachable(f"{error}; {lost} until Git answers")
            elif isinstance(found := await self._verify_kept(repository, commit), Unverified):
                refused[id] = errors.SourceUntrusted(
                    f"{error}; {found.message}, so nothing is corrected until Git answers"
                )
            elif self._owner(named := await self._identified(repository, commit)) == id:
                return named
        # of several only a commit tells which of them is that of our directory of the repository
        if len(refused) != 1:
            self._last = ("", None)
        if refused:
            raise next(iter(refused.values())) from error
        return None

    def _ends_the_start(self, error: errors.GitopsError) -> bool:
        return len(self._around.service.repositories) == 1 and not error.retryable

    async def _first_look(self, repository: Repository) -> Prepared | None:
        """The owner's id needs the repository's own name, so this comes before the loop; None when
        asked to stop meanwhile.
        """
        said = ""
        async with self._saved() as saver:
            while not self._stopping.is_set():
                try:
                    return await self._named_or_applied(repository)
                except errors.GitopsError as error:
                    if self._ends_the_start(error):
                        raise
                    is_new, said, self._first_error = str(error) != said, str(error), error
                if is_new:
                    self._around.tell(
                        ReconcileFailed(time.time(), said, self._settings.retry_interval)
                    )
                self._looked = True
                if (status := self.status) and status.id:
                    saver.update(status, write=is_new)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), self._settings.retry_interval)
            await saver.close()
        return None

    @contextlib.asynccontextmanager
    async def _saved(self) -> AsyncIterator[source_status_store.Saver]:
        """Saves the status as long as there is no loop that does so."""
        place = (self._around.service.cluster.namespace, "")
        saver = source_status_store.Saver(self._around.cluster, place, time.time)
        saving = asyncio.create_task(saver.run())
        try:
            yield saver
        finally:
            await ended(saving)


def limits_of(settings: RepositorySettings) -> RepositoryLimits:
    """The caps on what is fetched."""
    return RepositoryLimits(
        seconds=settings.timeout,
        bytes=settings.limits.bytes or DEFAULT.bytes,
        files=settings.limits.files or DEFAULT.files,
        file_bytes=settings.limits.file_bytes or DEFAULT.file_bytes,
        snapshot_bytes=settings.limits.bytes,
    )


def followed(settings: RepositorySettings) -> str:
    """The branch, tag, range, ref or commit that the settings name, for people."""
    return (
        settings.commit
        or settings.ref
        or settings.semver
        or settings.tag
        or settings.branch
        or "HEAD"
    )


def revision_of(settings: RepositorySettings) -> revision.RevisionSpec:
    """What the settings follow; the server's default branch where they name nothing."""
    if not any((settings.commit, settings.ref, settings.semver, settings.tag, settings.branch)):
        return revision.Head()
    return revision.from_settings(
        commit=settings.commit,
        name=settings.ref,
        semver=settings.semver,
        tag=settings.tag,
        branch=settings.branch,
    )
