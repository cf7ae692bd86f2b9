"""The commits of a branch with their messages and changed files."""

from __future__ import annotations

from collections.abc import Mapping

from gitops_ds.git import object_reader
from gitops_ds.git.bare_repository import BareRepository
from gitops_ds.model.objects import CommitId
from gitops_ds.model.rollouts.halted_rollout import BranchCommit, FileChange
from gitops_ds.model.sources.source_tree import CommitInfo


def read(
    bare: BareRepository, since: CommitId, until: CommitId, limit: int
) -> tuple[BranchCommit, ...]:
    """The commits reachable from `until` but not from `since`, newest first, at most `limit`."""
    commits = object_reader.log(bare, since, until, limit)
    return tuple(BranchCommit(one, _message(bare, one.id), _changes(bare, one)) for one in commits)


def _message(bare: BareRepository, commit: CommitId) -> str:
    message = bare.objects.commit(commit).message
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else message


def _changes(bare: BareRepository, commit: CommitInfo) -> Mapping[str, FileChange]:
    """The files that differ from the first parent; every file of a first commit."""
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-commit-id")
    trees = (commit.parents[0], commit.id) if commit.parents else ("--root", commit.id)
    fields = bare.run(*words, *trees).stdout.split(b"\0")
    # `:MODE MODE BLOB BLOB STATUS`, then the name
    rows = zip(fields[::2], fields[1::2], strict=False)
    return {name.decode("utf-8", "surrogateescape"): _change(row) for row, name in rows}


def _change(row: bytes) -> FileChange:
    _, _, before, after, _ = row.decode().split(" ")
    return FileChange(before.strip("0") and before, after.strip("0") and after)
