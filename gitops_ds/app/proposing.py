"""A commit on a branch's tip, shown or pushed: how every command of ours writes to Git."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from gitops_ds import errors
from gitops_ds.app import repositories
from gitops_ds.model.objects import CommitId
from gitops_ds.source import person, revision
from gitops_ds.source.repository import Repository
from gitops_ds.source.writing import Signature

_AUTHOR = re.compile(r"\s*([^<>\n]+?)\s*<([^<>\s]+)>\s*")


@dataclass(frozen=True, slots=True)
class Proposal:
    """Which branch (None: the default one), whether the commit is pushed there, and who writes it (None: the person there)."""

    branch: str | None = None
    push: bool = False
    author: str | None = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """The commit, the branch that it is for, and its patch."""

    commit: CommitId
    branch: str
    patch: str


@asynccontextmanager
async def opened(named: repositories.Named, proposal: Proposal) -> AsyncIterator[Repository]:
    """The repository to write to. Raises UsageError for a push to the branch that is checked out there."""
    async with repositories.opened(named) as repository:
        if proposal.push and named.directory is not None:
            here = await repository.default_branch()
            if proposal.branch in (None, here):
                raise errors.UsageError(
                    f"{here} is checked out in {named.display}, and git does not push there: name the server, "
                    "-C $(git remote get-url origin), or another --branch"
                )
        yield repository


async def propose(repository: Repository, proposal: Proposal, build: Callable[[CommitId], Awaitable[CommitId]]) -> Proposed:
    """Builds the commit on the branch's tip; where it is pushed, again when somebody pushed first."""
    branch = proposal.branch or await repository.default_branch()
    if proposal.push:
        commit = await repository.push_with_retry(build, branch)
    else:
        tip = await repository.tip(revision.Branch(branch))
        await repository.fetch(tip)
        commit = await build(tip)
    return Proposed(commit, branch, await repository.show(commit))


def signature(named: repositories.Named, author: str | None) -> Signature:
    """Who writes the commit, now. Raises UsageError for an author that is none."""
    now = datetime.now(UTC).replace(microsecond=0)
    if author is None:
        return Signature(*person.name_and_mail(named.directory), now, person.signing(named.directory))
    matched = _AUTHOR.fullmatch(author)
    if not matched:
        raise errors.UsageError(f"--author {author!r}: write it as 'Name <mail@example.com>'")
    return Signature(matched[1], matched[2], now, person.signing(named.directory))
