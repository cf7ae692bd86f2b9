"""A Git repository for asyncio: all commands run in its worker thread, in order."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.halted_rollout import BranchCommit
from gitops_ds.core.sources import repository_limits
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.source.git import (
    branch_history,
    cluster_refs,
    commit_writer,
    local_copy,
    object_reader,
    remote,
    signatures,
)
from gitops_ds.source.git.address import Address
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.branch_history import ApprovalCommit, ChangedFiles
from gitops_ds.source.git.cluster_refs import ReportRef
from gitops_ds.source.git.commit_writer import CommitReason, Signature
from gitops_ds.source.git.credentials.credential_values import (
    ANONYMOUS,
    Credentials,
    CredentialSource,
)
from gitops_ds.source.git.git_worker import GitWorker
from gitops_ds.source.git.object_reader import BranchMovement
from gitops_ds.source.git.revision import Branch, RevisionSpec
from gitops_ds.source.sandbox import memory
from gitops_ds.source.sandbox.turns import TurnEnded, Turns

_SHORT_FETCH: Final = 10.0  # seconds
# A second attempt after a push would be refused, or push the same change again.
_PUSHES: Final = (remote.push, cluster_refs.publish)
P = ParamSpec("P")
T = TypeVar("T")


class Repository:
    """A repository at an address, with a bare copy in the cache directory.

    `credentials` are fixed or requested for each connection. `allowed` are the renderers that may
    run on its files. `turns` are those of all repositories that share git's part of the memory.

    Every method raises the SourceErrors of errors.py (and Refused, UsageError) and nothing else.
    Use it as an async context manager, or call `close`, which deletes the credentials from the
    disk.
    """

    def __init__(
        self,
        address: Address,
        cache: Path,
        credentials: Credentials | CredentialSource = ANONYMOUS,
        limits: repository_limits.RepositoryLimits = repository_limits.DEFAULT,
        allowed: repository_limits.AllowedRenderers = repository_limits.PROGRAMS,
        *,
        turns: Turns | None = None,
    ) -> None:
        self.address, self.allowed = address, allowed
        self._turns, self._is_slow = turns or Turns(), False
        self._worker = GitWorker(address, cache, limits)
        self._credential_source = (
            _always(credentials) if isinstance(credentials, Credentials) else credentials
        )

    async def tip(self, revision: RevisionSpec) -> CommitId:
        """The current commit of a revision at the server; fetches only for an abbreviated commit id
        and for `~N` and `^N`.
        """
        return await self._run_remote(remote.tip, revision)

    async def default_branch(self) -> str:
        """The branch of the server's HEAD."""
        return await self._run_remote(remote.default_branch)

    async def fetch(self, commit: CommitId) -> None:
        """Fetches a commit with its history; without a request if it was fetched before."""
        if not await self.has(commit):
            await self._run_in_turn(remote.fetch, commit)

    async def pin(self, name: str, commits: Collection[CommitId]) -> None:
        """Keeps these commits, as far as they were fetched, when the local copy exceeds its limit,
        in place of those that were pinned under the same name before.
        """
        await self._run(local_copy.pin, name, commits)

    async def has(self, commit: CommitId) -> bool:
        """Whether a commit was fetched, also by an earlier process; without a request."""
        return await self._run(object_reader.has, commit)

    async def snapshot(self, commit: CommitId, path: str = "") -> SourceTree:
        """The files of a fetched commit under a directory, names relative to it; see `tree` for
        the limits.
        """
        return await self._run(object_reader.snapshot, commit, path)

    async def verify(
        self, revision: RevisionSpec, tip: CommitId, since: CommitId | None, trust: Trust
    ) -> Verified | Unverified:
        """Whether the fetched tip of the revision, and with Mode.ALL every commit after `since`,
        has a trusted signature.
        """
        if trust.mode is not Mode.TAG:
            return await self._run_remote(signatures.verify, revision, tip, since, trust)
        return await self._run_in_turn(signatures.verify, revision, tip, since, trust)

    async def verify_kept(
        self, revision: RevisionSpec, commit: CommitId, trust: Trust
    ) -> Verified | Unverified:
        """Whether a fetched former tip has a trusted signature; with Mode.TAG, of one of its tags.

        Tags are those of the server; while it is unreachable, the fetched ones.
        """
        if trust.mode is not Mode.TAG:
            return await self._run(signatures.verify_kept, revision, commit, trust)
        try:
            return await self._run_in_turn(signatures.verify_kept, revision, commit, trust)
        except errors.SourceUnreachable:
            return await self._run(signatures.verify_fetched, commit, trust)

    async def is_signed(self, commit: CommitId) -> bool:
        """Whether a fetched commit has a signature at all, by any key."""
        return await self._run(signatures.is_signed, commit)

    async def newest_verified(
        self, revision: RevisionSpec, tip: CommitId, trust: Trust
    ) -> CommitId | None:
        """The newest commit in the history of a fetched tip with a trusted signature."""
        return await self._run_remote(signatures.newest, revision, tip, trust)

    async def info(self, commit: CommitId) -> CommitInfo:
        """The metadata of a fetched commit."""
        return await self._run(object_reader.info, commit)

    async def log(
        self, since: CommitId | None, until: CommitId, limit: int = 1000
    ) -> tuple[CommitInfo, ...]:
        """The commits reachable from `until` but not from `since` (None: all), newest first, at
        most `limit`.
        """
        return await self._run(object_reader.log, since, until, limit)

    async def branch_commits(
        self, since: CommitId, until: CommitId, limit: int = 1000
    ) -> tuple[BranchCommit, ...]:
        """As `log`, with the message and the changed files of each commit."""
        return await self._run(branch_history.branch_commits, since, until, limit)

    async def line(
        self, since: CommitId | None, until: CommitId, limit: int = 1000
    ) -> tuple[BranchCommit, ...]:
        """As `branch_commits`, of the branch itself: only first parents, all if `since` is None.
        Raises RevisionUnknown for a commit that was not fetched.
        """
        return await self._run(branch_history.line, since, until, limit)

    async def earlier_files(
        self, since: CommitId, tip: CommitId, among: Collection[CommitId], path: str
    ) -> CommitId | None:
        """The commit of `among` with the tip's content of every file below the path that differs
        from `since`; None for another content.
        """
        return await self._run(branch_history.earlier_files, since, tip, among, path)

    async def approval_commits(self, commit: CommitId, tip: CommitId) -> tuple[ApprovalCommit, ...]:
        """The fetched commit and its descendants up to the tip that approve stages."""
        return await self._run(branch_history.approval_commits, commit, tip)

    async def commits_that_brought(
        self, since: CommitId, commit: CommitId, limit: int, merge: ChangedFiles | None = None
    ) -> tuple[ChangedFiles, ...] | None:
        """The commits of the branch itself after `since` up to `commit`, or those that a merge
        brought from this parent; None if they are unknown, or more than `limit`.
        """
        return await self._run(branch_history.brought, since, commit, limit, merge)

    async def commit_approval(
        self, tip: CommitId, values: Sequence[str], message: str, by: Signature
    ) -> CommitId:
        """An empty commit on the tip that approves stages."""
        return await self._run(branch_history.commit_approval, tip, values, message, by)

    async def is_ancestor(self, ancestor: CommitId, descendant: CommitId) -> bool:
        """Whether one fetched commit is in the history of another, or is that one."""
        return await self._run(object_reader.is_ancestor, ancestor, descendant)

    async def contained(
        self, descendant: CommitId, commits: Collection[CommitId]
    ) -> frozenset[CommitId]:
        """Those of some fetched commits that are in the history of another, or are that one."""
        return frozenset(
            [commit for commit in commits if await self.is_ancestor(commit, descendant)]
        )

    async def merge_base(self, one: CommitId, other: CommitId) -> CommitId | None:
        """The best common ancestor of two fetched commits; None without one."""
        return await self._run(object_reader.merge_base, one, other)

    async def movement(self, last: CommitId, tip: CommitId) -> BranchMovement:
        """The movement of the branch from the applied commit to its (fetched) tip."""
        return await self._run(object_reader.movement, last, tip)

    async def show(self, commit: CommitId) -> str:
        """Head, message and patch of a commit, also of one that was not pushed."""
        return await self._run(object_reader.show, commit)

    async def revert(
        self,
        tip: CommitId,
        commits: Mapping[CommitId, Sequence[str] | None],
        why: CommitReason,
    ) -> CommitId:
        """A revert commit on the tip for each of the commits, in that order, of its changes of the
        given files (None: all); the id of the last.
        """
        return await self._run(commit_writer.revert, tip, commits, why)

    async def restore(
        self, tip: CommitId, commit: CommitId, paths: Sequence[str], why: CommitReason
    ) -> CommitId:
        """A commit on the tip that restores the paths from an older commit."""
        return await self._run(commit_writer.restore, tip, commit, paths, why)

    async def commit_files(
        self, parent: CommitId, files: Mapping[str, bytes | None], message: str, by: Signature
    ) -> CommitId:
        """A commit on the parent with the given files, byte for byte (None: removed)."""
        return await self._run(commit_writer.commit_files, parent, files, message, by)

    async def push(self, commit: CommitId, branch: str, expect: CommitId | None) -> None:
        """Moves the server's branch from `expect` (None: a new branch) to the commit; PushRejected
        if it has moved.
        """
        await self._run_remote(remote.push, commit, branch, expect)

    async def push_with_retry(
        self, build: Callable[[CommitId], Awaitable[CommitId]], branch: str, attempts: int = 5
    ) -> CommitId:
        """Builds a commit on the branch's tip and pushes it; if the branch has moved, builds again
        on the new tip.

        Returns the pushed commit. Raises PushRejected after `attempts` attempts.
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

    async def cluster_reports(self, path: str, clusters: Sequence[str]) -> tuple[ReportRef, ...]:
        """The reports of these clusters on the server; `path` is the followed folder."""
        return await self._run_in_turn(cluster_refs.fetch, path, clusters)

    async def publish_report(
        self, path: str, report: ReportRef, expect: CommitId | None, by: Signature
    ) -> CommitId:
        """Replaces the report of a cluster; PushRejected if its ref is not `expect` (None: it must
        not exist).
        """
        ref = cluster_refs.ref_of(report.cluster, path)
        return await self._run_remote(cluster_refs.publish, ref, report, expect, by)

    async def close(self) -> None:
        """Kills the running command and git's helpers, and deletes the credentials from the disk,
        without waiting for the server.
        """
        await self._worker.close()

    async def __aenter__(self) -> Self:
        """Itself; git starts with the first call."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes."""
        await self.close()

    async def _run_remote(
        self, function: Callable[..., T], *arguments: object, has_turn: bool = False
    ) -> T:
        """Runs a function that connects to the server; again with newer credentials if the server
        refuses the first.
        """
        run = self._worker.run_in_turn if has_turn else self._run
        credentials = await self._credential_source(False)
        await self._worker.run(BareRepository.authorize, credentials)
        try:
            return await run(function, *arguments)
        except errors.SourceDenied:
            newer = await self._credential_source(True)
            if newer == credentials:
                raise
        await self._worker.run(BareRepository.authorize, newer)
        return await run(function, *arguments)

    async def _run_in_turn(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function that fetches, in the turn of this repository. A slow fetch is ended for
        those of other repositories and begins again, and the next one waits for theirs.
        """
        is_slow, run = self._is_slow, partial(self._run_remote, has_turn=True)

        async def attempt() -> T:
            began = time.monotonic()
            try:
                return await self._worker.until_cancelled(run, function, *arguments)
            finally:
                self._is_slow = time.monotonic() - began >= _SHORT_FETCH

        kept = 0.0 if is_slow else _SHORT_FETCH
        return await self._turns.run(self.address.url, attempt, kept=kept, long=is_slow)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function with the memory that each repository has at any time. If it needs more,
        it begins again in the turn of this repository. A push that is ended for others does not.
        """
        try:
            return await self._worker.run(function, *arguments)
        except errors.GitMemoryExceeded:
            if memory.here().read == memory.here().git:
                raise

        def attempt() -> Awaitable[T]:
            return self._worker.until_cancelled(self._worker.run_in_turn, function, *arguments)

        is_push = function in _PUSHES
        kept = _SHORT_FETCH if is_push else 0.0
        try:
            return await self._turns.run(
                self.address.url, attempt, kept=kept, long=True, repeats=not is_push
            )
        except TurnEnded:
            raise errors.SourceUnreachable(
                f"the push to {self.address.display} was ended after {_SHORT_FETCH:g} s, because "
                "other repositories waited; try again"
            ) from None


def _always(credentials: Credentials) -> CredentialSource:
    async def who(refused: bool) -> Credentials:
        return credentials

    return who
