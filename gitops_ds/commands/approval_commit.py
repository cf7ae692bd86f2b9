"""A signed, empty commit that approves a stage of a rollout by its trailer."""

from __future__ import annotations

from gitops_ds import errors
from gitops_ds.commands import git_commit
from gitops_ds.commands.git_commit import Proposal, Proposed
from gitops_ds.commands.rollout_approvals import ApprovedStage
from gitops_ds.model.objects import CommitId, short
from gitops_ds.pipeline import open_repository


async def approve(
    named: open_repository.RepositoryRef, proposal: Proposal, approved: ApprovedStage
) -> Proposed:
    """Builds the commit on the branch's tip, which has the commit of the rollout in its history;
    pushes it if requested.

    Raises Refused for a user whose commits are not signed, and for another branch.
    """
    by = git_commit.signature(named, proposal)
    if by.signing is None:
        raise errors.Refused(
            "an approval must be signed: set commit.gpgSign and user.signingKey (git config)"
        )
    key, rollout = approved.daemonset, CommitId(approved.target.commit)
    subject = f"Approve stage {approved.stage} of {key.name}, commit {short(rollout)}"
    values = (f"{key.namespace}/{key.name}/{approved.stage} {rollout}",)
    async with git_commit.opened(named, proposal) as repository:

        async def build(tip: CommitId) -> CommitId:
            if not await repository.has(rollout) or not await repository.is_ancestor(rollout, tip):
                raise errors.Refused(
                    f"commit {short(rollout)} of the rollout is not in the history of the branch"
                )
            return await repository.commit_approval(tip, values, subject, by)

        return await git_commit.propose(repository, proposal, build)
