"""One Git repository, for asyncio: everything runs in one worker thread of its own, one command
after the other.

GitPython's objects give wrong data when threads share them, so none leaves that thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from gitops_ds import errors
from gitops_ds.git import commit_writer, object_reader, remote, signatures
from gitops_ds.git.address import Address
from gitops_ds.git.bare_repository import BareRepository
from gitops_ds.git.commit_writer import CommitReason, Signature
from gitops_ds.git.credentials import ANONYMOUS, Credentials, CredentialSource
from gitops_ds.git.object_reader import BranchMovement
from gitops_ds.git.revision import Branch, RevisionSpec
from gitops_ds.model.allowed_renderers import PROGRAMS, AllowedRenderers
from gitops_ds.model.objects import CommitId
from gitops_ds.model.repository_limits import DEFAULT, RepositoryLimits
from gitops_ds.model.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.model.snapshot import CommitInfo, Snapshot

P = ParamSpec("P")
T = TypeVar("T")


class Repository:
    """A repository at an address, with a bare copy of our own in the cache directory.

    `credentials` are as whom we come, always or asked for each time that we come. `allowed` is what
    may run on its files, for whoever expands them. `room` is entered while something is fetched: a
    semaphore that repositories share bounds their memory.

    Every method raises the SourceErrors of errors.py (and Refused, UsageError) and nothing else.
    Use it as an async context manager, or call `close`: that takes the credentials off the disk.
    """

    def __init__(
        self,
        address: Address,
        cache: Path,
        credentials: Credentials | CredentialSource = ANONYMOUS,
        limits: RepositoryLimits = DEFAULT,
        allowed: AllowedRenderers = PROGRAMS,
        *,
        room: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        self.address, self.allowed = address, allowed
        self._room = room or contextlib.nullcontext()
        self._arguments = (address, cache, limits)
        self._who = _always(credentials) if isinstance(credentials, Credentials) else credentials
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="git")
        self._bare: BareRepository | None = None
        self._closing = False

    async def tip(self, revision: RevisionSpec) -> CommitId:
        """The commit that a revision means at the server now; fetches only for an abbreviated
        commit id and for `~N` and `^N`.
        """
        return await self._talk(remote.tip, revision)

    async def default_branch(self) -> str:
        """The branch that the server's HEAD names."""
        return await self._talk(remote.default_branch)

    async def fetch(self, commit: CommitId) -> None:
        """Brings a commit with its history here; asks nobody when it is here already."""
        if not await self.has(commit):
            async with self._room:
                await self._talk(remote.fetch, commit)

    async def has(self, commit: CommitId) -> bool:
        """Whether a commit was fetched, now or by an earlier process; asks nobody."""
        return await self._run(object_reader.has, commit)

    async def snapshot(self, commit: CommitId, path: str = "") -> Snapshot:
        """The files of a fetched commit under a directory, names relative to it; see `tree` for
        what is refused.
        """
        return await self._run(object_reader.snapshot, commit, path)

    async def verify(
        self, revision: RevisionSpec, tip: CommitId, since: CommitId | None, trust: Trust
    ) -> Verified | Unverified:
        """Whether a fetched tip of the revision, and with Mode.ALL what came after `since`, is
        signed by whom we trust.
        """
        if trust.mode is not Mode.TAG:
            return await self._talk(signatures.verify, revision, tip, since, trust)
        async with self._room:
            return await self._talk(signatures.verify, revision, tip, since, trust)

    async def verify_kept(
        self, revision: RevisionSpec, commit: CommitId, trust: Trust
    ) -> Verified | Unverified:
        """Whether a fetched commit that was the tip once is signed by whom we trust; with Mode.TAG,
        by a tag that names it.

        Of the tags only the server is asked; while it gives no answer, those count that were
        fetched.
        """
        if trust.mode is not Mode.TAG:
            return await self._run(signatures.verify_kept, revision, commit, trust)
        try:
            async with self._room:
                return await self._talk(signatures.verify_kept, revision, commit, trust)
        except errors.SourceUnreachable:
            return await self._run(signatures.verify_fetched, commit, trust)

    async def newest_verified(
        self, revision: RevisionSpec, tip: CommitId, trust: Trust
    ) -> CommitId | None:
        """The newest commit in the line of a fetched tip that is signed by whom we trust."""
        return await self._talk(signatures.newest, revision, tip, trust)

    async def info(self, commit: CommitId) -> CommitInfo:
        """What Git says of a fetched commit."""
        return await self._run(object_reader.info, commit)

    async def log(
        self, since: CommitId | None, until: CommitId, limit: int = 1000
    ) -> tuple[CommitInfo, ...]:
        """The commits that lead to `until` and not to `since` (None: all), newest first, at most
        `limit`.
        """
        return await self._run(object_reader.log, since, until, limit)

    async def is_ancestor(self, ancestor: CommitId, descendant: CommitId) -> bool:
        """Whether one fetched commit is in the history of another, or is that one."""
        return await self._run(object_reader.is_ancestor, ancestor, descendant)

    async def merge_base(self, one: CommitId, other: CommitId) -> CommitId | None:
        """The commit at which two fetched lines of history part; None where they have none in
        common.
        """
        return await self._run(object_reader.merge_base, one, other)

    async def movement(self, last: CommitId, tip: CommitId) -> BranchMovement:
        """How the branch went from the commit applied last to its (fetched) tip."""
        return await self._run(object_reader.movement, last, tip)

    async def show(self, commit: CommitId) -> str:
        """Head, message and patch of a commit, also of one that was not pushed."""
        return await self._run(object_reader.show, commit)

    async def revert(
        self, tip: CommitId, commits: Sequence[CommitId], why: CommitReason
    ) -> CommitId:
        """A revert commit on the tip for each of the commits, in that order; the id of the last."""
        return await self._run(commit_writer.revert, tip, commits, why)

    async def restore(
        self, tip: CommitId, commit: CommitId, paths: Sequence[str], why: CommitReason
    ) -> CommitId:
        """A commit on the tip in which the paths are as they were in an older commit."""
        return await self._run(commit_writer.restore, tip, commit, paths, why)

    async def commit_files(
        self, parent: CommitId, files: Mapping[str, bytes | None], message: str, by: Signature
    ) -> CommitId:
        """A commit on the parent with the given files, byte for byte (None: removed)."""
        return await self._run(commit_writer.commit_files, parent, files, message, by)

    async def push(self, commit: CommitId, branch: str, expect: CommitId | None) -> None:
        """Moves the server's branch from `expect` (None: a new branch) to the commit; PushRejected
        when it is elsewhere.
        """
        await self._talk(remote.push, commit, branch, expect)

    async def push_with_retry(
        self, build: Callable[[CommitId], Awaitable[CommitId]], branch: str, attempts: int = 5
    ) -> CommitId:
        """Builds a commit on the branch's tip and pushes it; when someone pushed first, reads the
        tip and builds again.

        Returns the pushed commit. Raises PushRejected when that went wrong `attempts` times.
        """
        for attempt in range(attempts):
            tip = await self.tip(Branch(branch))
            await self.fetch(tip)
            commit = await build(tip)
            try:
                await self.push(commit, branch, tip)
            except errors.PushRejected:
                if attempt + 1 == attempts:
                    raise
            else:
                return commit
        raise errors.PushRejected(f"no push to {branch} was tried")

    async def close(self) -> None:
        """Ends what runs, also git's helpers; removes the credentials from the disk. A server that
        hangs is not waited for.
        """
        self._closing = True
        if self._bare is not None:
            self._bare.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._worker, self._close_in_worker)
        self._worker.shutdown(wait=True)

    async def __aenter__(self) -> Self:
        """Itself; git starts with the first question."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes."""
        await self.close()

    async def _talk(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs what asks the server, as whom we are now; once more where it refuses us, and there
        is somebody newer to come as.
        """
        own = await self._who(False)
        await self._run(BareRepository.authorize, own)
        try:
            return await self._run(function, *arguments)
        except errors.SourceDenied:
            newer = await self._who(True)
            if newer == own:
                raise
        await self._run(BareRepository.authorize, newer)
        return await self._run(function, *arguments)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, self._in_worker, function, arguments
        )

    def _close_in_worker(self) -> None:
        bare, self._bare = self._bare, None
        if bare is not None:
            bare.close()

    def _in_worker(self, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        if self._bare is None:
            self._bare = BareRepository(*self._arguments)
        if self._closing:
            raise errors.SourceError(f"{self.address.display} is closed")
        try:
            return function(self._bare, *arguments)
        except OSError as error:
            raise errors.SourceError(
                f"the cache of {self.address.display} can't be used: {error.strerror}"
            ) from None


def _always(credentials: Credentials) -> CredentialSource:
    async def who(refused: bool) -> Credentials:
        return credentials

    return who
