"""Writes the approvals of stages onto their target revisions, from signed commits and reviews.

`rollouts.approvals.stage_approvals` decides whether a stage is approved. Git and the forge are read
only while a stage waits, so a later withdrawal of an approval does not close a stage. An approval
in the annotation that this process did not derive is derived again, or removed.

An approval by reviews: every commit of the branch that changed the files of the template, since the
last applied commit without it, must be of a pull request with a review by an approver. If no commit
is known to change these files, every commit must. A merge whose second parent is the reviewed head
needs no further review. Any other merge was a commit of the reviewed pull request, which shows
no change that the merge brought from the branch: these commits need a review as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec

from gitops_ds import __version__
from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.events.rollouts import ApprovalFailed, ApprovalIgnored, StageApproved
from gitops_ds.core.objects import CONTROLLER_REVISION, CommitId, short
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.rollouts.staged_rollout import Approver, StageApproval, WaitingStage
from gitops_ds.core.sources import file_places
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.core.values import replace
from gitops_ds.forges import forge_access
from gitops_ds.forges.client import Forge
from gitops_ds.forges.reviews import ApprovingReview, ReviewReader
from gitops_ds.rollouts.approvals import stage_approvals
from gitops_ds.rollouts.state.attested_records import RecordWrite
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.service.git import forge_discovery, git_auth, git_source
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.runnable import TimedAttempts
from gitops_ds.service.settings.repository import ForgeSettings
from gitops_ds.source.git.address import Address
from gitops_ds.source.git.branch_history import ApprovalCommit, ChangedFiles
from gitops_ds.source.git.revision import Head, RevisionSpec

EVERY = 60.0  # seconds between two reads of Git and the forge, without a new commit
BACKOFF = Backoff(15.0, 900.0, jitter=0.1)
PATIENCE = 60.0  # seconds for the forge
MOST_COMMITS = 50  # since the last applied commit without the template
MOST_PULL_REQUESTS = 5


class ApprovalRepository(Protocol):
    """The source of approvals (`gitops_ds.source.git.repository.Repository`)."""

    async def tip(self, revision: RevisionSpec) -> CommitId:
        """The current commit of a revision at the server."""
        ...

    async def fetch(self, commit: CommitId) -> None:
        """Fetches a commit with its history."""
        ...

    async def approval_commits(self, commit: CommitId, tip: CommitId) -> tuple[ApprovalCommit, ...]:
        """The commit and its descendants that approve stages."""
        ...

    async def commits_that_brought(
        self, since: CommitId, commit: CommitId, limit: int, merge: ChangedFiles | None = None
    ) -> tuple[ChangedFiles, ...] | None:
        """The commits of the branch itself after `since`, or those that a merge brought."""
        ...

    async def verify_kept(
        self, revision: RevisionSpec, commit: CommitId, trust: Trust
    ) -> Verified | Unverified:
        """Whether a commit has a trusted signature."""
        ...


Reviews = Callable[[WaitingStage, tuple[Approver, ...]], Awaitable[StageApproval | None]]


class _Look(msgspec.Struct, frozen=True):
    """The last attempt to find an approval: the applied commit, the time of the next attempt, the
    failures in a row and the last message.
    """

    commit: str
    next_at: float
    failures: int = 0
    message: str = ""


class _FoundApproval(msgspec.Struct, frozen=True):
    """The approval of a stage, None without one; and the message about commits that do not
    count.
    """

    approval: StageApproval | None = None
    ignored: str = ""


class ApprovalWriter(TimedAttempts[WaitingStage]):
    """Writes the approvals of one repository while `run` runs."""

    def __init__(
        self,
        context: RepositoryContext[ApprovalRepository],
        cluster: Cluster,
        reviews: Reviews | None = None,
        ledger: RolloutLedger | None = None,
    ) -> None:
        """`ledger` has the approvals that count; `reviews` reads the reviews of a stage, None
        without a forge.
        """
        super().__init__(context.clock)
        self._context, self._cluster = context, cluster
        self._reviews, self._ledger = reviews, ledger
        settings = context.settings
        self._approvers = {name: one.named(name) for name, one in settings.approvers.items()}
        self._looks: dict[tuple[str, str], _Look] = {}
        self._derived: dict[tuple[str, str], StageApproval] = {}

    def _pending(self) -> list[tuple[WaitingStage, float]]:
        """The stages without a derived approval, each with the time of the next attempt, which a
        new commit makes due.
        """
        stopped = self._context.stopped_rollouts() if self._approvers else None
        if stopped is None:
            return []
        current = {_id(rollout) for rollout in stopped.waiting}
        self._looks = {id: one for id, one in self._looks.items() if id in current}
        self._derived = {id: one for id, one in self._derived.items() if id in current}
        return [
            (
                rollout,
                look.next_at if (look := self._look(rollout)).commit == stopped.commit else 0.0,
            )
            for rollout in stopped.waiting
            if not self._is_known(rollout)
        ]

    def _is_known(self, stage: WaitingStage) -> bool:
        """Whether the annotation has exactly the approval that this process derived."""
        derived = self._derived.get(_id(stage))
        return derived is not None and stage_approvals.present(stage) == (derived,)

    def _look(self, stage: WaitingStage) -> _Look:
        return self._looks.get(_id(stage), _Look("", 0.0))

    async def _attempt(self, stage: WaitingStage) -> None:
        """One attempt. A failure is published once for the same message."""
        context, before = self._context, self._look(stage)
        stopped = context.stopped_rollouts()
        commit = stopped.commit if stopped else ""
        try:
            ignored = await self._derive(stage)
        except errors.GitopsError as error:
            failures, message = before.failures + 1, str(error)
            delay = BACKOFF.delay(failures, context.chance())
            now = context.clock()
            self._looks[_id(stage)] = _Look(commit, now + delay, failures, message)
            if message != before.message:
                about = (now, stage.daemonset, stage.owner, stage.commit, stage.stage)
                context.emit(ApprovalFailed(*about, message, delay))
            return
        now = context.clock()
        self._looks[_id(stage)] = _Look(commit, now + EVERY, message=ignored)
        if ignored and ignored != before.message:
            about = (now, stage.daemonset, stage.owner, stage.commit, stage.stage)
            context.emit(ApprovalIgnored(*about, ignored))

    async def _derive(self, stage: WaitingStage) -> str:
        """Writes the approval of a stage, or removes one that has no source. Without an approval,
        the commits that do not count, each with its reason. Raises GitopsError.
        """
        context, known = self._context, self._derived.get(_id(stage))
        found = _FoundApproval(known) if known is not None else await self._find(stage)
        approval = found.approval
        text = stage_approvals.annotation(stage, approval)
        if (approval is not None and stage_approvals.present(stage) != (approval,)) or (
            approval is None and (stage_approvals.present(stage) or stage.is_forged)
        ):
            write = RecordWrite.of_approvals(stage.uid, text, stage.annotation)
            if self._ledger is not None:
                await self._ledger.announce(write)
            await self._cluster.patch(
                CONTROLLER_REVISION, stage.daemonset.namespace, stage.revision, write.patch
            )
        if approval is not None and _id(stage) not in self._derived:
            self._derived[_id(stage)] = approval
            about = (context.clock(), stage.daemonset, stage.owner, stage.commit, stage.stage)
            context.emit(StageApproved(*about, approval.text))
        return "" if approval is not None else found.ignored

    async def _find(self, stage: WaitingStage) -> _FoundApproval:
        approvers = stage_approvals.approvers_of(stage, self._approvers)
        if not approvers:
            raise errors.Refused(
                f"approval.from names {', '.join(stage.approvers)}, and repository.approvers "
                "does not have them"
            )
        found = await self._by_commit(stage, approvers)
        if found.approval is None and self._reviews is not None:
            found = replace(found, approval=await self._reviews(stage, approvers))
        return found

    async def _by_commit(
        self, stage: WaitingStage, approvers: tuple[Approver, ...]
    ) -> _FoundApproval:
        """The approval by a signed commit of the followed branch."""
        if not any(known.keys for known in approvers) or not stage.commit:
            return _FoundApproval()
        repository, settings = self._context.repository, self._context.settings
        tip = await repository.tip(git_source.revision_of(settings))
        await repository.fetch(tip)
        await repository.fetch(stage.commit)
        trust = replace(git_auth.trust_of(settings), mode=Mode.HEAD)
        flaws = dict[CommitId, str]()
        for commit in await repository.approval_commits(stage.commit, tip):
            flaw = _flaw(commit, stage)
            if flaw == "":
                signed = await repository.verify_kept(Head(), commit.id, trust)
                if isinstance(signed, Verified) and (
                    approver := stage_approvals.by_key(approvers, signed)
                ):
                    by = signed.signer or signed.key
                    how = f"commit {short(commit.id)}"
                    return _FoundApproval(stage_approvals.approval(stage, approver, by, how))
                flaw = "it has no signature of an approver"
            if flaw is not None:
                flaws[commit.id] = flaw
        return _FoundApproval(ignored=stage_approvals.ignored_approvals(flaws, stage))


def _flaw(commit: ApprovalCommit, stage: WaitingStage) -> str | None:
    """That of its best trailer: empty if one approves, None if none is for the stage."""
    flaws = [stage_approvals.trailer_flaw(value, commit.id, stage) for value in commit.values]
    return min((flaw for flaw in flaws if flaw is not None), default=None)


def _id(stage: WaitingStage) -> tuple[str, str]:
    return stage.uid, stage.stage


class ForgeReviews:
    """Finds the reviews of one repository with a bounded number of requests."""

    def __init__(
        self,
        repository: ApprovalRepository,
        where: Address,
        forge: ForgeSettings,
        path: str,
        branch: Callable[[], Awaitable[str]],
    ) -> None:
        """`path` is the followed folder, `branch` returns the followed branch."""
        self._repository, self._where, self._forge, self._path = repository, where, forge, path
        self._branch = branch

    async def find(
        self, stage: WaitingStage, approvers: tuple[Approver, ...]
    ) -> StageApproval | None:
        """The approval of a stage by reviews. Raises GitopsError."""
        approvers = tuple(approver for approver in approvers if approver.users or approver.teams)
        commits = await self._commits(stage) if approvers else ()
        if not commits:
            return None
        access = forge_discovery.access_of(self._where, self._forge)
        branch = await self._branch()
        async with Forge(access, PATIENCE, f"gitops-ds/{__version__}") as forge:
            reader = ReviewReader(forge, forge_access.api(access.kind), access.project, branch)
            merged = partial(self._merged, stage)
            return await approval_by_reviews(reader, stage, approvers, commits, merged)

    async def _commits(self, stage: WaitingStage) -> tuple[ChangedFiles, ...]:
        """The commits that must be reviewed; none if they are unknown, or too many."""
        if not stage.since or not stage.commit:
            return ()
        commits_of_template = await self._repository.commits_that_brought(
            CommitId(stage.since), stage.commit, MOST_COMMITS
        )
        commits = commits_to_review(commits_of_template or (), stage, self._path)
        return commits if len(commits) <= MOST_PULL_REQUESTS else ()

    async def _merged(
        self, stage: WaitingStage, merge: ChangedFiles
    ) -> tuple[ChangedFiles, ...] | None:
        """The commits that a merge brought and that must be reviewed; None if they are unknown."""
        commits: list[ChangedFiles] = []
        for parent in merge.parents[1:]:
            some = await self._repository.commits_that_brought(
                CommitId(stage.since), parent, MOST_COMMITS, merge
            )
            if some is None:
                return None
            commits += some
        return commits_to_review(commits, stage, self._path)


def commits_to_review(
    commits: Iterable[ChangedFiles], stage: WaitingStage, path: str
) -> tuple[ChangedFiles, ...]:
    """The commits that change the files of the template; if no commit is known to change them,
    all.
    """
    all_commits = tuple(commits)
    own = [
        commit
        for commit in all_commits
        if file_places.files_at(file_places.by_place(commit.files), stage.files, path)
    ]
    return tuple(own) or all_commits


async def approval_by_reviews(
    reader: ReviewReader,
    stage: WaitingStage,
    approvers: tuple[Approver, ...],
    commits: Iterable[ChangedFiles],
    merged: Callable[[ChangedFiles], Awaitable[tuple[ChangedFiles, ...] | None]],
) -> StageApproval | None:
    """The approval by a review of each of the commits; None if one has no valid review. `merged`
    returns the commits that a merge brought and that must be reviewed.
    """
    approvals: dict[int, tuple[Approver, ApprovingReview]] = {}
    left, done = [*commits], set[CommitId]()
    while left:
        commit = left.pop(0)
        if commit.id in done:
            continue
        done.add(commit.id)
        reviews = await reader.approving(commit.id)
        of_merge = [review for review in reviews if (review.head,) == commit.parents[1:]]
        counted = await _counted(reader, of_merge or reviews, approvers)
        if counted is None:
            return None
        approvals[counted[1].number] = counted
        if not of_merge and len(commit.parents) > 1:
            brought = await merged(commit)
            if brought is None:
                return None
            left += brought
    if not approvals:
        return None
    approver = next(iter(approvals.values()))[0]
    users = dict.fromkeys(review.user for _, review in approvals.values())
    numbers = ", ".join(f"#{number}" for number in sorted(approvals))
    return stage_approvals.approval(stage, approver, ", ".join(users), f"review of {numbers}")


async def _counted(
    reader: ReviewReader, reviews: Iterable[ApprovingReview], approvers: Iterable[Approver]
) -> tuple[Approver, ApprovingReview] | None:
    """The first review by an approver: a user, else a member of a team."""
    all_reviews = tuple(reviews)
    for approver in approvers:
        for review in all_reviews:
            if review.user in approver.users:
                return approver, review
    for approver in approvers:
        for team in sorted(approver.teams):
            for review in all_reviews:
                if await reader.is_member(team, review):
                    return approver, review
    return None
