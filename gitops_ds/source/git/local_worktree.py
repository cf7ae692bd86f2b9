"""A new work tree, for `init` and the demo: initialize a repository, commit all files."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import git

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.source.git import address, hardening

_AUTHOR = re.compile(r"([^<>\n]+?) <([^<>\s]+)>")


def begin(directory: Path, subject: str, author: str) -> CommitId:
    """Initializes a repository with the branch `main`, which accepts pushes into its work tree, and
    commits all files.
    """
    with (
        git.Repo.init(directory, initial_branch="main") as repository,
        repository.config_writer() as settings,
    ):
        settings.set_value("receive", "denyCurrentBranch", "updateInstead")
    return commit(directory, subject, author)


def origin(directory: Path) -> str | None:
    """The address of the remote `origin` of a work tree, without credentials; None without that
    remote.
    """
    try:
        with git.Repo(directory) as repository:
            url = repository.config_reader("repository").get_value('remote "origin"', "url", "")
    except (git.InvalidGitRepositoryError, git.NoSuchPathError, configparser.Error, OSError):
        return None
    try:
        return address.parse(str(url), allow_local=True).display if url else None
    except errors.UsageError:
        return address.scrub(str(url))


def commit(directory: Path, subject: str, author: str) -> CommitId:
    """Commits every change of the work tree. `author` is `Name <mail>`; no hook runs. Raises
    SourceError.
    """
    matched = _AUTHOR.fullmatch(author)
    if matched is None:
        raise errors.UsageError(
            f"{author!r} is not a valid author: write 'Name <mail@example.com>'"
        )
    actor = git.Actor(matched[1], matched[2])
    try:
        with git.Repo(directory) as repository:
            repository.git.update_environment(**hardening.desk())
            repository.git.add("--all", "--", ".")
            made = repository.index.commit(subject, author=actor, committer=actor, skip_hooks=True)
            return CommitId(made.hexsha)
    except (git.GitCommandError, OSError) as error:
        raise errors.SourceError(
            f"{directory}: the commit failed: {' '.join(str(error).split())[:300]}"
        ) from error
