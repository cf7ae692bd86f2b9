"""Opens the repository of a command: the files of a directory, a commit of it, or a URL."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.repository_limits import PROGRAMS, AllowedRenderers
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.git import address, worktree
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATIONS

if TYPE_CHECKING:  # not needed for a work tree
    from gitops_ds.source.git.credentials.credential_values import Credentials, Login
    from gitops_ds.source.git.repository import Repository
    from gitops_ds.source.renderers.process import Means


class RepositoryRef(msgspec.Struct, frozen=True):
    """A repository of a command: its address (None: outside Git), the path inside it, and the root
    directory of a local one.

    `allowed` are the programs that may run on its files.
    """

    where: address.Address | None
    path: str = ""
    directory: Path | None = None
    allowed: AllowedRenderers = PROGRAMS

    @property
    def display(self) -> str:
        """The name in messages, without credentials."""
        return self.where.display if self.where else str(self.directory)

    @property
    def display_path(self) -> str:
        """The directory inside the repository in messages."""
        return "/".join(filter(None, (self.display, self.path)))

    @property
    def identity(self) -> str:
        """The identity of the repository in a cluster."""
        return identity(self.where) if self.where else self.display


def identity(where: address.Address) -> str:
    """The identity of a repository in a cluster: for a work tree that of its remote, so that all
    clones have the same one.
    """
    from gitops_ds.source.git import local_worktree

    origin = (
        local_worktree.origin(Path(where.display)) if where.scheme is address.Scheme.FILE else None
    )
    return origin or where.display


def title(where: address.Address, path: str) -> str:
    """The name of the followed folder of a repository in events and notifications."""
    return " ".join(filter(None, (identity(where), path)))


def cache_directory(of: str = "git") -> Path:
    """The directory of bare copies (or `renders`) between runs."""
    base = (
        os.environ.get("GITOPS_DS_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gitops-ds"
    )
    return Path(base) / of


def named(text: str | None, path: str = "", may: AllowedRenderers | None = None) -> RepositoryRef:
    """The repository of `-C` or an argument: a URL, a directory, or by default the work tree of the
    current directory.

    `may` are the programs that may run on its files, by default the renderers. Raises UsageError
    for a missing directory.
    """
    allowed = PROGRAMS if may is None else may
    if text and ("://" in text or (not Path(text).exists() and ":" in text)):
        return RepositoryRef(address.parse(text, allow_local=True), path, allowed=allowed)
    directory = Path(text or ".").resolve()
    if not directory.is_dir():
        raise errors.UsageError(
            f"{text} is neither a directory nor a URL: name a repository's directory, or "
            "https:// or ssh://"
        )
    root = worktree.find_work_tree(directory)
    bare = (directory / "HEAD").is_file() and (directory / "objects").is_dir()
    if bare and not (root and worktree.tracks(root, directory)):
        return RepositoryRef(address.parse(str(directory), allow_local=True), path, None, allowed)
    if root is None:
        return RepositoryRef(None, path, directory, allowed)
    # Without an argument the repository is the whole work tree; with one it is that directory.
    inside = "" if text is None else directory.relative_to(root).as_posix().removeprefix(".")
    return RepositoryRef(
        address.parse(str(root), allow_local=True),
        "/".join(part for part in (inside, path) if part),
        root,
        allowed,
    )


def credentials(where: address.Address) -> Credentials:
    """The user's credentials: from the URL, GITOPS_DS_GIT_TOKEN, GITOPS_DS_GIT_USER and
    GITOPS_DS_GIT_PASSWORD, or their ssh.
    """
    from gitops_ds.source.git.credentials.credential_values import (
        Bearer,
        Credentials,
        OwnSsh,
        Password,
    )

    authorities = b""
    if file := os.environ.get("GITOPS_DS_GIT_CA_FILE"):
        try:
            authorities = Path(file).read_bytes()
        except OSError as error:
            raise errors.UsageError(f"GITOPS_DS_GIT_CA_FILE={file}: {error.strerror}") from None
    login: Login | None = where.login
    if where.scheme is address.Scheme.SSH:
        login = OwnSsh()
    elif password := os.environ.get("GITOPS_DS_GIT_PASSWORD"):
        login = Password(password, os.environ.get("GITOPS_DS_GIT_USER") or "git")
    elif token := os.environ.get("GITOPS_DS_GIT_TOKEN"):
        bearer = os.environ.get("GITOPS_DS_GIT_AUTH") == "bearer"
        login = Bearer(token) if bearer else Password(token)
    return Credentials(login, authorities)


@asynccontextmanager
async def opened(repository: RepositoryRef) -> AsyncIterator[Repository]:
    """The Git repository. Raises UsageError for a directory outside Git."""
    if repository.where is None:
        raise errors.UsageError(
            f"{repository.display} is not in Git, and this needs commits: name a repository with "
            "-C, or `git init` and commit"
        )
    from gitops_ds.source.git.repository import Repository

    where, own = repository.where, credentials(repository.where)
    async with Repository(where, cache_directory(), own, allowed=repository.allowed) as repo:
        yield repo


async def commit_snapshot(repository: Repository, at: str | None, path: str) -> SourceTree:
    """The snapshot of a revision (None: the default branch), with expanded kustomizations and
    charts.
    """
    return await expanded(await unexpanded(repository, at, path), repository.allowed)


async def unexpanded(repository: Repository, at: str | None, path: str) -> SourceTree:
    """The snapshot of a revision (None: the default branch), not expanded."""
    from gitops_ds.source.git import revision

    tip = await repository.tip(revision.parse(at) if at else revision.Head())
    await repository.fetch(tip)
    return await repository.snapshot(tip, path)


async def snapshot_of(repository: Repository, commit: CommitId, path: str) -> SourceTree:
    """The snapshot of a commit, with expanded kustomizations and charts."""
    await repository.fetch(commit)
    return await expanded(await repository.snapshot(commit, path), repository.allowed)


def standing(repository: RepositoryRef) -> SourceTree:
    """A local repository's work tree, not expanded. Raises UsageError for a remote repository."""
    if repository.directory is None:
        raise errors.UsageError(f"{repository.display} has no work tree")
    return worktree.snapshot(repository.directory, repository.path)


async def snapshot(
    repository: RepositoryRef, at: str | None, *, committed: bool = False
) -> SourceTree:
    """The snapshot for a command: the files of the work tree, or with `at`, a URL or `committed`, a
    commit.
    """
    if repository.directory is not None and at is None and not committed:
        return await expanded(standing(repository), repository.allowed)
    async with opened(repository) as repo:
        return await commit_snapshot(repo, at, repository.path)


async def rendered_again(tree: SourceTree, allowed: AllowedRenderers) -> SourceTree:
    """The files of an expanded snapshot, with the output of another run of each program."""
    plain = replace(tree, expanded={}, placed={}, charts={}, consumed=frozenset(), findings=())
    return await expanded(plain, allowed, cached=False)


async def base_snapshot(
    repository: RepositoryRef, base: str, at: str | None, server: str = ""
) -> SourceTree:
    """The snapshot of the merge base of `at` (None: HEAD) and the base: later changes of the base
    do not count, as in a pull request.

    `server` is the repository for the merge base; empty: the repository itself, which may lack the
    history (a shallow clone of a CI).
    """
    from gitops_ds.source.git import revision

    head = revision.parse(at) if at else revision.Head()
    if server:
        async with opened(repository) as repo:
            head = revision.Commit(await repo.tip(head))
        repository = replace(named(server, repository.path, repository.allowed), directory=None)
    async with opened(repository) as repo:
        tip, own = await repo.tip(revision.parse(base)), await repo.tip(head)
        for commit in (tip, own):
            await repo.fetch(commit)
        return await snapshot_of(repo, await repo.merge_base(tip, own) or tip, repository.path)


async def commit_named(text: str, directory: str | None) -> str:
    """The commit of a revision. An id, full or abbreviated, is returned unchanged and needs no
    repository.

    `directory` is a directory or URL, None the work tree of the current directory. Raises
    UsageError and SourceError.
    """
    if re.fullmatch("[0-9a-f]{7,64}", text.lower()):
        return text.lower()
    from gitops_ds.source.git import revision

    spec = revision.parse(text)
    async with opened(named(directory)) as repo:
        return await repo.tip(spec)


async def expanded(
    tree: SourceTree, allowed: AllowedRenderers, *, cached: bool = True
) -> SourceTree:
    """The snapshot with its kustomizations and charts expanded by the allowed programs; without
    `cached` each program runs, also for content that was rendered before.
    """
    from gitops_ds.source.render import bundle, charts

    used_charts = charts.charts(tree)
    if not used_charts and not any(path.name in KUSTOMIZATIONS for path in tree.files):
        return tree
    from gitops_ds.source.renderers import expand

    which = expand.Which(bundle.ignored(tree), bundle.kustomizations(tree), used_charts)
    return await expand.expand(tree, which, replace(means(allowed), cached=cached))


def means(allowed: AllowedRenderers) -> Means:
    """The resources of the renders of a commit."""
    from gitops_ds.source.renderers.process import RENDER, Means

    limits = replace(RENDER, seconds=allowed.seconds)
    return Means(allowed, limits, cache=cache_directory("renders"))


def includes(
    repository: RepositoryRef, commit: str
) -> Callable[[CommitId], Awaitable[bool]] | None:
    """Whether a later commit has `commit` in its history; None without Git, False if Git can't
    compare them.
    """
    if repository.where is None:
        return None
    from gitops_ds.source.git import revision
    from gitops_ds.source.git.object_reader import BranchMovement

    async def contains(later: CommitId) -> bool:
        try:
            async with opened(repository) as repo:
                await repo.fetch(later)
                earlier = await repo.tip(revision.parse(commit))
                return await repo.movement(earlier, later) is BranchMovement.FORWARD
        except errors.SourceError:
            return False

    return contains
