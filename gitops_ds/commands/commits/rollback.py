"""Rollback: finds the commit to restore, and builds, shows or pushes the commit that restores
it.
"""

from __future__ import annotations

import msgspec

from gitops_ds.commands import history
from gitops_ds.commands.commits import git_commit
from gitops_ds.commands.commits.backport import BackportOptions
from gitops_ds.commands.commits.git_commit import Proposal, Proposed
from gitops_ds.fleet.agents import Agent
from gitops_ds.git import revision
from gitops_ds.git.commit_writer import CommitReason
from gitops_ds.git.repository import Repository
from gitops_ds.model.health import HealthState
from gitops_ds.model.objects import CommitId
from gitops_ds.model.values import replace
from gitops_ds.pipeline import open_repository


class RollbackOptions(msgspec.Struct, frozen=True):
    """The target (at most one of the two; by default the previous revision), the reason, and
    whether it is pushed.
    """

    to_revision: int | None
    to_commit: str | None
    reason: str = ""
    cluster: str = ""
    proposal: Proposal = msgspec.field(default_factory=Proposal)


class RollbackResult(msgspec.Struct, frozen=True):
    """The restoring commit, and its proposal."""

    way: history.RestoringCommit
    proposed: Proposed


async def roll_back(
    named: open_repository.RepositoryRef, agent: Agent, options: RollbackOptions
) -> RollbackResult:
    """Builds the commit on the branch's tip; pushes it if requested."""
    async with git_commit.opened(named, options.proposal) as repository:
        return await roll_back_in(repository, named, agent, options)


async def roll_back_in(
    repository: Repository,
    named: open_repository.RepositoryRef,
    agent: Agent,
    options: RollbackOptions,
) -> RollbackResult:
    """As `roll_back`, in an open repository."""
    if options.to_revision is None and options.to_commit is None:
        options = replace(options, to_revision=history.revision_before(agent).number)
    goal = await _wanted(repository, agent, options)
    why = CommitReason(
        options.reason or _reason(agent, options), git_commit.signature(named, options.proposal)
    )
    ways: list[history.RestoringCommit] = []

    async def build(tip: CommitId) -> CommitId:
        ways.append(await history.way_back(repository, named.path, tip, goal, why))
        return ways[-1].commit

    proposed = await git_commit.propose(repository, options.proposal, build)
    return RollbackResult(ways[-1], proposed)


async def _wanted(
    repository: Repository, agent: Agent, options: RollbackOptions
) -> BackportOptions:
    cluster = options.cluster or agent.state.cluster
    if options.to_commit is not None:
        target = await repository.tip(revision.parse(options.to_commit))
        return BackportOptions(agent.key, target, None, cluster, agent.key.namespace)
    earlier = history.revision_of(agent, options.to_revision or 0)
    commit = agent.commit_of(earlier)
    return BackportOptions(
        agent.key, CommitId(commit) if commit else None, earlier, cluster, agent.key.namespace
    )


def _reason(agent: Agent, options: RollbackOptions) -> str:
    where = (
        f"revision {options.to_revision}"
        if options.to_revision is not None
        else f"commit {options.to_commit}"
    )
    text = f"Back to {where} of {agent.key}."
    ill = agent.health.state in (HealthState.DEGRADED, HealthState.FAILED)
    return text if not ill else f"{text}\n\n{agent.health.state}: {agent.health.message}"
