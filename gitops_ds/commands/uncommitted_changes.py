"""Uncommitted changes of a work tree: `plan` reads the files of the work tree, `apply`
takes the commit.
"""

from __future__ import annotations

import msgspec

from gitops_ds import errors
from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.pipeline import open_repository

_SHOWN = 3


class Uncommitted(msgspec.Struct, frozen=True):
    """The read files that differ from the commit (empty: no commit exists yet)."""

    commit: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        """The files, the first by name."""
        shown = ", ".join(self.files[:_SHOWN])
        return (
            shown if len(self.files) <= _SHOWN else f"{shown} and {len(self.files) - _SHOWN} more"
        )


async def of(repository: open_repository.RepositoryRef, side: SourceTree) -> Uncommitted | None:
    """The difference between the work tree and the commit of `apply`; None if they are equal, or
    without a work tree of Git.

    `side` is one of the two, already read; the other is read here.
    """
    if repository.where is None or repository.directory is None:
        return None
    try:
        work = side if side.commit is None else open_repository.standing(repository)
        async with open_repository.opened(repository) as repo:
            commit = (
                side
                if side.commit
                else await open_repository.unexpanded(repo, None, repository.path)
            )
    except errors.RevisionUnknown:
        return Uncommitted("", tuple(sorted(map(str, side.files))))
    except (
        errors.SourceError
    ):  # the comparison is optional: steps that require Git report the error
        return None
    differ = {
        path
        for path in {*work.files, *commit.files}
        if work.files.get(path) != commit.files.get(path)
    }
    return (
        Uncommitted(commit.commit.id if commit.commit else "", tuple(sorted(map(str, differ))))
        if differ
        else None
    )
