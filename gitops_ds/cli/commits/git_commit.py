"""A commit on a branch's tip, shown or pushed, for every command that writes to Git."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gitops_ds import __version__
from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.forges import forge_access
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import NewPullRequest
from gitops_ds.forges.forge_access import ForgeAccess
from gitops_ds.service.git import forge_discovery
from gitops_ds.source.git import revision, signing
from gitops_ds.source.git.commit_writer import Signature
from gitops_ds.source.git.repository import Repository

PATIENCE = 120.0  # seconds for the forge
_AUTHOR = re.compile(r"\s*([^<>\n]+?)\s*<([^<>\s]+)>\s*")


class Proposal(msgspec.Struct, frozen=True):
    """The branch (None: the default one), whether the commit is pushed, and the author (None: the
    user of the work tree).

    With a forge it becomes a pull request: at once, or with `push` if the branch refuses it.
    `signoff` adds the author's sign-off. `home` is the work tree whose configuration has the
    signing key, if the repository is a server.
    """

    branch: str | None = None
    push: bool = False
    author: str | None = None
    forge: forge_discovery.NamedForge | None = None
    signoff: bool = False
    home: Path | None = None


class Proposed(msgspec.Struct, frozen=True):
    """The commit, its branch, its patch, and the page of its pull request, if any."""

    commit: CommitId
    branch: str
    patch: str
    pull_request: str = ""


class WriteTarget(msgspec.Struct, frozen=True):
    """The repository for a commit, and the commit with its branch."""

    repository: open_repository.RepositoryRef
    proposal: Proposal


async def on_server(named: open_repository.RepositoryRef, proposal: Proposal) -> WriteTarget:
    """The remote `origin` of a work tree and the checked-out branch, for a push to this branch and
    for a pull request; otherwise, and without that remote, the repository itself.
    """
    is_pull_request = proposal.forge is not None
    if named.directory is None or not (proposal.push or is_pull_request):
        return WriteTarget(named, proposal)
    async with open_repository.opened(named) as repository:
        here = await repository.default_branch()
    other = proposal.branch not in (None, here)
    if named.identity == named.display or (other and not is_pull_request):
        return WriteTarget(named, proposal)
    remote = open_repository.named(named.identity, named.path, named.allowed)
    author = proposal.author or author_of(named.directory)
    server = replace(remote, directory=None, path=named.path)
    return WriteTarget(
        server,
        replace(proposal, branch=proposal.branch or here, author=author, home=named.directory),
    )


def author_of(directory: Path) -> str:
    """The author in the configuration of a work tree, as `NAME <MAIL>`."""
    name, mail = signing.name_and_mail(directory)
    return f"{name} <{mail}>"


@asynccontextmanager
async def opened(
    named: open_repository.RepositoryRef, proposal: Proposal
) -> AsyncIterator[Repository]:
    """The repository for writes. Raises UsageError for a push to the branch that is checked out
    there.
    """
    async with open_repository.opened(named) as repository:
        if named.directory is not None and proposal.forge is not None:
            raise errors.UsageError(
                "a pull request is opened at the server, and the work tree has no remote `origin`: "
                "name the repository with -C URL"
            )
        if proposal.push and named.directory is not None:
            here = await repository.default_branch()
            if proposal.branch in (None, here):
                raise errors.UsageError(
                    f"{here} is checked out in {named.display}, which has no remote `origin`, and "
                    "git does not push to a branch that is checked out: name the server with "
                    "-C URL, or another --branch"
                )
        yield repository


async def propose(
    repository: Repository, proposal: Proposal, build: Callable[[CommitId], Awaitable[CommitId]]
) -> Proposed:
    """Builds the commit on the branch's tip; with a push, again if another push came first."""
    branch = proposal.branch or await repository.default_branch()
    forge = None if proposal.forge is None else _access(repository, proposal.forge)
    if proposal.push:
        try:
            commit = await repository.push_with_retry(build, branch)
            return Proposed(commit, branch, await repository.show(commit))
        except errors.SourceDenied:
            if forge is None:
                raise
    tip = await repository.tip(revision.Branch(branch))
    await repository.fetch(tip)
    commit = await build(tip)
    link = "" if forge is None else await _opened(repository, forge, commit, branch)
    return Proposed(commit, branch, await repository.show(commit), link)


def _access(repository: Repository, named: forge_discovery.NamedForge) -> ForgeAccess:
    """Raises UsageError if the forge is unknown or has no token."""
    forge = forge_discovery.find(repository.address, named)
    return ForgeAccess(
        forge.kind, forge.url, forge_access.token(forge.kind, os.environ), forge.project
    )


async def _opened(repository: Repository, forge: ForgeAccess, commit: CommitId, target: str) -> str:
    """The page of the commit's pull request. Its branch is named by the commit, so that a second
    one is impossible.
    """
    branch = f"gitops-ds/{short(commit)}"
    await repository.push(commit, branch, None)
    info = await repository.info(commit)
    async with Forge(forge, PATIENCE, f"gitops-ds/{__version__}") as there:
        return await there.open(
            NewPullRequest(
                branch, target, info.subject, f"Written by `gitops-ds`: commit {commit}."
            )
        )


def signature(named: open_repository.RepositoryRef, proposal: Proposal) -> Signature:
    """The author of the commit and the current time. Raises UsageError for an invalid author."""
    now = datetime.now(UTC).replace(microsecond=0)
    if proposal.author is None:
        name, mail = signing.name_and_mail(named.directory)
    elif matched := _AUTHOR.fullmatch(proposal.author):
        name, mail = matched[1], matched[2]
    else:
        raise errors.UsageError(
            f"--author {proposal.author!r}: write it as 'Name <mail@example.com>'"
        )
    home = proposal.home or named.directory
    signoff = proposal.signoff or signing.signs_off(home)
    return Signature(name, mail, now, signing.of_user(home), signoff)
