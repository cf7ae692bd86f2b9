"""Rollback as people ask for it: finds the commit to go back to, writes the one that leads there, shows or pushes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from gitops_ds import errors
from gitops_ds.app import ledger, repositories
from gitops_ds.app.rewriting import Wanted
from gitops_ds.controller.fleet import Agent
from gitops_ds.model.decision import HealthState
from gitops_ds.model.objects import CommitId
from gitops_ds.source import person, revision
from gitops_ds.source.repository import Repository
from gitops_ds.source.writing import Signature, Why


@dataclass(frozen=True, slots=True)
class Asked:
    """Where to go back to (one of the two), and how."""

    to_revision: int | None
    to_commit: str | None
    branch: str | None
    reason: str
    author: str | None
    cluster: str = ""
    push: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The commit, the branch that it is for, and its patch."""

    way: ledger.WayBack
    branch: str
    patch: str


async def roll_back(named: repositories.Named, agent: Agent, asked: Asked) -> Done:
    """Builds the commit on the branch's tip; pushes it where asked, again when someone pushed first."""
    async with repositories.opened(named) as repository:
        if asked.push and named.directory is not None and asked.branch in (None, here := await repository.default_branch()):
            raise errors.UsageError(
                f"{here} is checked out in {named.display}, and git does not push there: name the server, "
                "-C $(git remote get-url origin), or another --branch"
            )
        return await roll_back_in(repository, named, agent, asked)


async def roll_back_in(repository: Repository, named: repositories.Named, agent: Agent, asked: Asked) -> Done:
    """As `roll_back`, in a repository that is open."""
    branch = asked.branch or await repository.default_branch()
    wanted = await _wanted(repository, agent, asked)
    why = Why(asked.reason or _reason(agent, asked), _signature(named, asked.author))
    ways: list[ledger.WayBack] = []

    async def build(tip: CommitId) -> CommitId:
        ways.append(await ledger.way_back(repository, named.path, tip, wanted, why))
        return ways[-1].commit

    if asked.push:
        await repository.push_with_retry(build, branch)
    else:
        tip = await repository.tip(revision.Branch(branch))
        await repository.fetch(tip)
        await build(tip)
    return Done(ways[-1], branch, await repository.show(ways[-1].commit))


async def _wanted(repository: Repository, agent: Agent, asked: Asked) -> Wanted:
    cluster = asked.cluster or agent.state.cluster
    if asked.to_commit is not None:
        target = await repository.tip(revision.parse(asked.to_commit))
        return Wanted(agent.key, target, None, cluster, agent.key.namespace)
    found = ledger.revision_of(agent, asked.to_revision or 0)
    commit = agent.commit_of(found)
    return Wanted(agent.key, CommitId(commit) if commit else None, found, cluster, agent.key.namespace)


def _reason(agent: Agent, asked: Asked) -> str:
    where = f"revision {asked.to_revision}" if asked.to_revision is not None else f"commit {asked.to_commit}"
    text = f"Back to {where} of {agent.key}."
    return text if agent.health.state is HealthState.HEALTHY else f"{text}\n\n{agent.health.state}: {agent.health.message}"


_AUTHOR = re.compile(r"\s*([^<>\n]+?)\s*<([^<>\s]+)>\s*")


def _signature(named: repositories.Named, author: str | None) -> Signature:
    now = datetime.now(UTC).replace(microsecond=0)
    if author is None:
        return Signature(*person.name_and_mail(named.directory), now)
    matched = _AUTHOR.fullmatch(author)
    if not matched:
        raise errors.UsageError(f"--author {author!r}: write it as 'Name <mail@example.com>'")
    return Signature(matched[1], matched[2], now)
