"""Commits with approvals in their trailers, and the commits that added a template.

https://git-scm.com/docs/git-interpret-trailers
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gitops_ds.git import commit_writer, object_reader
from gitops_ds.git.bare_repository import BareRepository
from gitops_ds.git.commit_writer import Signature
from gitops_ds.model.objects import CommitId
from gitops_ds.model.rollouts.staged_rollout import TRAILER

MOST = 100  # commits with the trailer, the newest
_FORMAT = f"%H%x1f%(trailers:key={TRAILER},valueonly,unfold,separator=%x1f)"


class ApprovalCommit(msgspec.Struct, frozen=True):
    """A commit and the values of its trailers; nothing about its signature is known."""

    id: CommitId
    values: tuple[str, ...]


class ChangedFiles(msgspec.Struct, frozen=True):
    """A commit and the files that differ from its first parent."""

    id: CommitId
    files: frozenset[str]


def read(bare: BareRepository, commit: CommitId, tip: CommitId) -> tuple[ApprovalCommit, ...]:
    """The commit and its descendants up to the tip that have the trailer, newest first.

    None if the tip is not a descendant of the commit.
    """
    if not object_reader.is_ancestor(bare, commit, tip):
        return ()
    common = ("rev-list", "--no-commit-header", f"--format={_FORMAT}", f"--max-count={MOST}")
    grep = ("--regexp-ignore-case", f"--grep=^{TRAILER}:")
    later = bare.run(*common, *grep, "--ancestry-path", f"{commit}..{tip}").text
    itself = bare.run(*common, *grep, "--no-walk", commit).text
    rows = [row.split("\x1f") for row in (later + "\n" + itself).splitlines() if row]
    commits = (ApprovalCommit(CommitId(id), tuple(filter(None, values))) for id, *values in rows)
    return tuple(one for one in commits if one.values)


def brought(
    bare: BareRepository, since: CommitId, commit: CommitId, limit: int
) -> tuple[ChangedFiles, ...] | None:
    """The commits of the branch itself after `since` up to `commit`, newest first.

    None for more than `limit` commits, and if `since` is not in the history of `commit`.
    """
    if not object_reader.has(bare, since) or not object_reader.is_ancestor(bare, since, commit):
        return None
    words = ("rev-list", "--first-parent", f"--max-count={limit + 1}", f"{since}..{commit}")
    ids = [CommitId(id) for id in bare.run(*words).text.split()]
    if len(ids) > limit:
        return None
    return tuple(ChangedFiles(id, _files(bare, id)) for id in ids)


def commit_approval(
    bare: BareRepository, tip: CommitId, values: Sequence[str], message: str, by: Signature
) -> CommitId:
    """An empty commit on the tip, with these values of the trailer."""
    trailers = "".join(f"\n{TRAILER}: {value}" for value in values)
    return commit_writer.commit_empty(bare, tip, f"{message}\n{trailers}", by)


def _files(bare: BareRepository, commit: CommitId) -> frozenset[str]:
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^1", commit)
    names = bare.run(*words).stdout.split(b"\0")
    return frozenset(name.decode("utf-8", "surrogateescape") for name in names if name)
