"""The approvals of stages by reviews of the pull requests of the template's commits.

Every commit of the branch that changed the files of the template, since the last applied commit
without it, must be of a pull request with a review by an approver. If no commit is known to change
these files, every commit must.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from gitops_ds import __version__
from gitops_ds.forges import forge_access
from gitops_ds.forges.client import Forge
from gitops_ds.forges.reviews import ApprovingReview, ReviewReader
from gitops_ds.git.address import Address
from gitops_ds.git.branch_history import ChangedFiles
from gitops_ds.model.objects import CommitId
from gitops_ds.model.rollouts.staged_rollout import Approver, StageApproval, WaitingStage
from gitops_ds.plan.rollouts import applied_rollouts
from gitops_ds.service.git import forge_discovery
from gitops_ds.service.rollouts.approval_writer import ApprovalRepository
from gitops_ds.settings.repository import ForgeSettings

PATIENCE = 60.0  # seconds for the forge
MOST_COMMITS = 50  # since the last applied commit without the template
MOST_PULL_REQUESTS = 5


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
        approvers = tuple(one for one in approvers if one.users or one.teams)
        commits = await self._commits(stage) if approvers else ()
        if not commits:
            return None
        access = forge_discovery.access_of(self._where, self._forge)
        branch = await self._branch()
        async with Forge(access, PATIENCE, f"gitops-ds/{__version__}") as forge:
            reader = ReviewReader(forge, forge_access.api(access.kind), access.project, branch)
            return await approval(reader, stage, approvers, commits)

    async def _commits(self, stage: WaitingStage) -> tuple[CommitId, ...]:
        """The commits that must be reviewed; none if they are unknown, or too many."""
        if not stage.since or not stage.commit:
            return ()
        commits_of_template = await self._repository.commits_that_brought(
            CommitId(stage.since), stage.commit, MOST_COMMITS
        )
        commits = to_review(commits_of_template or (), stage, self._path)
        return commits if len(commits) <= MOST_PULL_REQUESTS else ()


def to_review(
    commits: Iterable[ChangedFiles], stage: WaitingStage, path: str
) -> tuple[CommitId, ...]:
    """The commits that change the files of the template; if no commit is known to change them,
    all.
    """
    all_commits = tuple(commits)
    own = [one.id for one in all_commits if applied_rollouts.touches(one.files, stage.files, path)]
    return tuple(own or (one.id for one in all_commits))


async def approval(
    reader: ReviewReader,
    stage: WaitingStage,
    approvers: tuple[Approver, ...],
    commits: Iterable[CommitId],
) -> StageApproval | None:
    """The approval by a review of each of the commits; None if one has no valid review."""
    approvals: dict[int, tuple[Approver, ApprovingReview]] = {}
    for commit in commits:
        reviews = await reader.approving(commit)
        counted = await _counted(reader, reviews, approvers)
        if counted is None:
            return None
        approvals[counted[1].number] = counted
    if not approvals:
        return None
    approver = next(iter(approvals.values()))[0]
    users = dict.fromkeys(review.user for _, review in approvals.values())
    numbers = ", ".join(f"#{number}" for number in sorted(approvals))
    return applied_rollouts.approval(stage, approver, ", ".join(users), f"review of {numbers}")


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
