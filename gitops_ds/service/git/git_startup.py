"""The start of a deployer: the owner's id of a repository, from Git or from the state in the
cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import EventOrigin
from gitops_ds.core.events.deployer import ReconcileFailed
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.sources.signatures import Unverified
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop_state, owner_identity, source_status_store, state_store
from gitops_ds.deploy.owner_identity import FoundOwner
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.kube.client.supervisor import ended
from gitops_ds.service.deployer_context import DeployerContext
from gitops_ds.service.git.git_source import GitSource, followed
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git.address import Address, same_place


class Startup:
    """Attempts to read the owner's id of one repository until one succeeds.

    The id needs the repository's own name for its objects, so this precedes the loop. A name that
    is refused is read again from each newer commit, and the status has the reason meanwhile.
    """

    def __init__(
        self, context: DeployerContext, settings: RepositorySettings, address: Address
    ) -> None:
        self._context, self._settings, self._address = context, settings, address
        name = open_repository.title(address, settings.path)
        self._emit = context.events.of(EventOrigin(repository=name))
        self._stopping, self._wake = False, asyncio.Event()
        self._error: errors.GitopsError | None = None
        # from the state in the cluster: the owner's id and the last good commit
        self._applied: tuple[str, CommitId | None] = ("", None)
        self._since = time.time()
        self.attempted = False

    @property
    def status(self) -> SourceStatus | None:
        """The status after a failed attempt."""
        if self._error is None:
            return None
        id, applied = self._applied
        return SourceStatus(
            id,
            self._address.display,
            followed(self._settings),
            source_status_store.of_error(self._error),
            str(self._error),
            applied=applied,
            since=self._since,
        )

    def stop(self) -> None:
        """Ends `run` before the next attempt."""
        self._stopping = True
        self._wake.set()

    def wake(self) -> None:
        """Requests the next attempt at once."""
        self._wake.set()

    async def run(self, source: GitSource, leading: Callable[[], bool]) -> FoundOwner | None:
        """The owner's id; None after `stop`. The status is saved while
        `leading`.

        Raises GitopsError if a retry cannot help and the service has only one repository.
        """
        message, failures, backoff = "", 0, _backoff(self._settings)
        refused = ""
        async with self._saver() as saver:
            while not self._stopping:
                self._wake.clear()
                try:
                    owner = await self._newest_or_applied(source)
                    if refused:
                        await self._forget(saver, refused)
                    return owner
                except errors.GitopsError as error:
                    if self._is_final(error):
                        raise
                    refused = (
                        self._applied[0] if isinstance(error, errors.OwnerRefused) else refused
                    )
                    is_new, message, self._error = str(error) != message, str(error), error
                failures += 1
                wait = backoff.delay(failures, random.random())
                if is_new:
                    self._emit(ReconcileFailed(time.time(), message, wait))
                self.attempted = True
                if leading() and (status := self.status) and status.id:
                    saver.update(status, write=is_new)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait)
            await saver.close()
        return None

    def _is_final(self, error: errors.GitopsError) -> bool:
        """Whether a retry cannot help; a push can create a missing branch, or replace a commit that
        is too large.
        """
        by_push = isinstance(error, errors.RevisionUnknown | errors.SourceTooLarge)
        helps = error.retryable or by_push
        return len(self._context.service.repositories) == 1 and not helps

    async def _newest_or_applied(self, source: GitSource) -> FoundOwner:
        """The owner by the newest trusted commit; if Git does not return it, by the last applied
        commit.
        """
        try:
            newest = await self._identified(source, await source.newest())
        except errors.SourceError as error:
            if self._is_final(error):
                raise
            if applied := await self._last_applied(source, error):
                return applied
            raise
        return await self._owner(source, newest)

    async def _identified(self, source: GitSource, commit: CommitId) -> Prepared:
        """A fetched commit without its manifests. Raises CommitTooHeavy and CommitRefused."""
        try:
            return await source.identified(commit)
        except errors.UsageError as error:
            raise errors.CommitRefused(f"commit {short(commit)}: {error}") from error

    async def _owner(self, source: GitSource, prepared: Prepared) -> FoundOwner:
        """The owner of the objects of a commit, also of one at a former address."""

        def is_elsewhere(repository: str, path: str) -> bool:
            others = (
                known for known in self._context.service.repositories if known != self._settings
            )
            if same_place(repository, source.name) and path == self._settings.path:
                return False
            return owner_identity.is_elsewhere(repository, source.name) or any(
                same_place(other.url, repository) and other.path == path for other in others
            )

        evidence = owner_identity.Evidence(
            source.contains, is_elsewhere, time.time(), is_service=True
        )
        key, context = source.owner_key(prepared), self._context
        namespace = context.service.cluster.namespace
        try:
            owner = await owner_identity.find(context.cluster, namespace, key, evidence)
            self._claim(owner.id, " ".join((source.name, self._settings.path)).strip())
        except errors.OwnerRefused:
            self._applied = (replace(key, hint="").new_id(), None)
            raise
        return owner

    def _claim(self, id: str, repository: str) -> None:
        """Claims the id among the repositories of this service. Raises OwnerRefused."""
        first = self._context.owners.setdefault(id, repository)
        if first != repository:
            raise errors.OwnerRefused(
                f"the name of {repository} in gitops-ds.yaml is that of {first}, also followed by "
                f"this service (owner {id}): write another name"
            )

    async def _forget(self, saver: source_status_store.Saver, id: str) -> None:
        """Deletes the status of a repository that has an owner's id now."""
        saver.stop()
        with contextlib.suppress(errors.ClusterError):
            namespace = self._context.service.cluster.namespace
            await source_status_store.forget(self._context.cluster, namespace, id)

    async def _last_applied(
        self, source: GitSource, error: errors.SourceError
    ) -> FoundOwner | None:
        """The owner by the last applied commit in the state in the cluster, from the local copy;
        None without one.

        Raises SourceUnreachable or SourceUntrusted, with the error of Git, if the commit is not in
        the local copy or not trusted.
        """
        failures = dict[str, errors.SourceError]()
        for id, state in (await self._states()).items():
            commit = state.last_attempted
            if not same_place(state.repository, source.name) or commit is None:
                continue
            self._applied = (id, state.last_good)
            if not await source.repository.has(commit):
                missing = f"the last applied commit, {short(commit)}, is not in the local copy"
                failures[id] = errors.SourceUnreachable(
                    f"{error}; {missing}, so drift is not corrected until Git responds"
                )
            elif isinstance(result := await source.verify_kept(commit), Unverified):
                failures[id] = errors.SourceUntrusted(
                    f"{error}; {result.message}, so drift is not corrected until Git responds"
                )
            else:
                owner = await self._owner(source, await source.identified(commit))
                if owner.id == id:
                    return owner
        # With several states, only the content of a commit shows which one is that of this
        # directory.
        if len(failures) != 1:
            self._applied = ("", None)
        if failures:
            raise next(iter(failures.values())) from error
        return None

    async def _states(self) -> dict[str, DeployerState]:
        context = self._context
        with contextlib.suppress(errors.ClusterError):  # the caller raises Git's error
            return dict(
                await state_store.load_all(context.cluster, context.service.cluster.namespace)
            )
        return {}

    @contextlib.asynccontextmanager
    async def _saver(self) -> AsyncIterator[source_status_store.Saver]:
        """Saves the status in the cluster while there is no loop that does."""
        namespace = self._context.service.cluster.namespace
        saver = source_status_store.Saver(self._context.cluster, namespace, time.time)
        saving = asyncio.create_task(saver.run())
        try:
            yield saver
        finally:
            await ended(saving)


def _backoff(settings: RepositorySettings) -> Backoff:
    """The back-off, up to the interval of a loop's reads."""
    first = settings.retry_interval
    longest = min(max(first, settings.interval), loop_state.LONGEST_RETRY)
    return Backoff(first, longest, jitter=loop_state.JITTER)
