"""The source of commits of a deployer: verified, and prepared by a separate process."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence, Set

from gitops_ds.checks.engine import check
from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, Digest, digest_of
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.rollouts.halted_rollout import BranchCommit
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.repository_limits import DEFAULT, RepositoryLimits
from gitops_ds.core.sources.signatures import Mode, Unverified, Verified
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy import revision_selector
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.owner_identity import OwnerKey
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.wave_gate import WaveSource
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports
from gitops_ds.service import prepare_process
from gitops_ds.service.git import git_auth
from gitops_ds.service.prepare_worker import Job
from gitops_ds.service.rollouts import published_reports
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git import revision
from gitops_ds.source.git.object_reader import BranchMovement
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.rules import OVER_LIMIT


class GitSource:
    """The commits of an open repository; `cluster` is the cluster's name in the settings. `causes`
    finds the commits of templates.
    """

    def __init__(
        self,
        repository: Repository,
        settings: RepositorySettings,
        cluster: str,
        preparing: prepare_process.Preparing,
    ) -> None:
        self.repository = repository
        self._settings, self._cluster, self._preparing = settings, cluster, preparing
        self._revision = revision_of(settings)
        self._clean: Mapping[str, Set[Digest]] = {}
        self._newest: CommitId | None = None
        self._branch, self._branch_at = followed(settings), CommitId("")
        self.causes = CauseFinder(
            CommitSource(self._line, self._render, repository.contained, settings.path)
        )

    @property
    def name(self) -> str:
        """The identity of the repository, by its address."""
        return open_repository.identity(self.repository.address)

    def revisions(self) -> revision_selector.RevisionSource:
        """The source of a deployer loop."""
        return revision_selector.RevisionSource(
            self._tip,
            self._snapshot,
            self.repository.movement,
            self._prepared,
            self._verify,
            self.verify_kept,
            self._keep,
            follows_rewrites=self._settings.verify.follows_rewrites,
            branch=lambda: self._branch,
            followed=followed_tag(self._revision),
            waves=WaveSource(self._reports, self._earlier),
            causes=self.causes,
        )

    async def _tip(self) -> CommitId:
        """The tip of the revision. A new tip of the server's HEAD is read with the name of the
        branch.
        """
        commit = await self.repository.tip(self._revision)
        if isinstance(self._revision, revision.Head) and commit != self._branch_at:
            try:
                self._branch = await self.repository.default_branch()
            except errors.RevisionUnknown:  # a detached HEAD
                self._branch = followed(self._settings)
            self._branch_at = commit
        return commit

    async def newest(self) -> CommitId:
        """The newest trusted commit, fetched.

        Raises SourceUntrusted, and the errors of reading a repository.
        """
        commit = await self._newest_trusted()
        await self.repository.fetch(commit)
        return commit

    async def identified(self, commit: CommitId) -> Prepared:
        """A fetched commit without its manifests, for the owner's id. Raises CommitTooHeavy, and
        UsageError for one without the cluster of the settings.
        """
        self._newest = commit
        prepared = await self._preparing.prepared(replace(self._job(commit), identity_only=True))
        over = (finding for finding in prepared.findings if finding.rule == OVER_LIMIT.id)
        if heavy := next(over, None):
            raise errors.CommitTooHeavy(f"{self.repository.address.display}: {heavy.message}")
        return prepared

    async def prepared(self, commit: CommitId) -> Prepared:
        """A commit of the local copy, rendered and checked; also one that was not pushed."""
        return await self._preparing.prepared(self._job(commit))

    async def _line(
        self, since: CommitId | None, head: CommitId, limit: int
    ) -> tuple[BranchCommit, ...]:
        if since is not None:
            await self.repository.fetch(since)
        return await self.repository.line(since, head, limit)

    async def _render(self, commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
        job = replace(self._job(commits[0]), rendered=tuple(commits), clean={})
        return await self._preparing.digests(job)

    def owner_key(self, prepared: Prepared) -> OwnerKey:
        """What owns the objects of a commit."""
        bundle = prepared.bundle
        return OwnerKey(bundle.owner_hint, self.name, self._settings.path, bundle.cluster.name)

    async def contains(self, commit: CommitId) -> bool:
        """Whether a commit is in the history of the newest fetched one."""
        if self._newest is None:
            return False
        movement = await self.repository.movement(commit, self._newest)
        return movement is not BranchMovement.REWRITTEN

    async def verify_kept(self, commit: CommitId) -> Verified | Unverified | None:
        """The verification of the last good commit, by its own signature or that of a tag on it;
        None if the settings require no signature.
        """
        trust = git_auth.trust_of(self._settings)
        if trust.mode is Mode.NONE:
            return None
        await self.repository.fetch(commit)
        return await self.repository.verify_kept(self._revision, commit, trust)

    async def _reports(self, order: ClusterOrder) -> ClusterReports:
        """The reports of the clusters before this one."""
        trust = git_auth.trust_of(self._settings)
        path = self._settings.path
        return published_reports.of(
            await published_reports.read(self.repository, path, order.after, trust)
        )

    async def _earlier(
        self, since: CommitId, tip: CommitId, among: Collection[CommitId]
    ) -> CommitId | None:
        """The commit of `among` whose files the tip brings back. Raises SourceError."""
        await self.repository.fetch(since)
        return await self.repository.earlier_files(since, tip, among, self._settings.path)

    async def _keep(self, commits: Collection[CommitId]) -> None:
        """Other deployers may follow the same repository: each one pins its own commits."""
        name = digest_of(f"{self._settings.path}\n{followed(self._settings)}\n{self._cluster}")
        await self.repository.pin(name, commits)

    async def _verify(self, tip: CommitId, since: CommitId | None) -> Verified | Unverified | None:
        """The verification of the tip; None if the settings require no signature. The keys are read
        each time, so that a new key applies at once.
        """
        trust = git_auth.trust_of(self._settings)
        if trust.mode is Mode.NONE:
            return None
        await self.repository.fetch(tip)
        if since is not None:
            # after a rewrite the server may not have it, which the result of `verify` reports
            with contextlib.suppress(errors.RevisionUnknown):
                await self.repository.fetch(since)
        return await self.repository.verify(self._revision, tip, since, trust)

    async def _newest_trusted(self) -> CommitId:
        tip = await self.repository.tip(self._revision)
        result = await self._verify(tip, None)
        if not isinstance(result, Unverified):
            return tip
        trust = git_auth.trust_of(self._settings)
        if newest := await self.repository.newest_verified(self._revision, tip, trust):
            return newest
        raise errors.SourceUntrusted(f"{self.repository.address.display}: {result.message}")

    async def _snapshot(self, commit: CommitId) -> SourceTree:
        """The metadata of a commit, fetched if necessary. Its files are read by the process that
        prepares it.
        """
        await self.repository.fetch(commit)
        self._newest = commit
        return SourceTree(await self.repository.info(commit), {})

    async def _prepared(self, snapshot: SourceTree) -> Prepared:
        """The prepared commit. Objects without findings in an earlier commit are not checked again
        while they are the same.
        """
        assert snapshot.commit is not None
        prepared = await self._preparing.prepared(self._job(snapshot.commit.id))
        if prepared.deployable:
            self._clean = {check.circumstances(prepared.bundle): prepared.clean}
        return prepared

    def _job(self, commit: CommitId) -> Job:
        return Job(
            where=self.repository.address,
            cache=open_repository.cache_directory(),
            limits=limits_of(self._settings),
            allowed=self.repository.allowed,
            commit=commit,
            path=self._settings.path,
            cluster=self._cluster,
            clean=self._clean,
        )


async def branch_of(repository: Repository, settings: RepositorySettings) -> str:
    """The followed branch; empty for a tag, a commit and another ref. Raises SourceError."""
    if settings.tag or settings.semver or settings.commit:
        return ""
    if settings.ref:
        branch = settings.ref.removeprefix("refs/heads/")
        return "" if branch == settings.ref else branch
    return settings.branch or await repository.default_branch()


def limits_of(settings: RepositorySettings) -> RepositoryLimits:
    """The limits of a fetch."""
    return RepositoryLimits(
        seconds=settings.timeout,
        bytes=settings.limits.bytes or DEFAULT.bytes,
        files=settings.limits.files or DEFAULT.files,
        file_bytes=settings.limits.file_bytes or DEFAULT.file_bytes,
        snapshot_bytes=settings.limits.bytes,
    )


def followed(settings: RepositorySettings) -> str:
    """The branch, tag, range, ref or commit of the settings, as text."""
    return (
        settings.commit
        or settings.ref
        or settings.semver
        or settings.tag
        or settings.branch
        or "HEAD"
    )


def followed_tag(spec: revision.RevisionSpec) -> str:
    """The tag of a revision, or its range of tags, as text; empty for another kind."""
    match spec:
        case revision.Semver(text):
            return f"the newest tag in the version range {text}"
        case revision.Tag():
            return revision.show(spec)
        case _:
            return ""


def revision_of(settings: RepositorySettings) -> revision.RevisionSpec:
    """The revision of the settings; without one the server's default branch."""
    if not any((settings.commit, settings.ref, settings.semver, settings.tag, settings.branch)):
        return revision.Head()
    return revision.from_settings(
        commit=settings.commit,
        name=settings.ref,
        semver=settings.semver,
        tag=settings.tag,
        branch=settings.branch,
    )
