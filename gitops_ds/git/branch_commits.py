"""The commits of a branch with their messages and changed files."""

from __future__ import annotations

from gitops_ds.git import object_reader
from gitops_ds.git.bare_repository import BareRepository
from gitops_ds.model.objects import CommitId
from gitops_ds.model.rollouts.halted_rollout import BranchCommit
from gitops_ds.model.sources.source_tree import CommitInfo


def read(
    bare: BareRepository, since: CommitId, until: CommitId, limit: int
) -> tuple[BranchCommit, ...]:
    """The commits reachable from `until` but not from `since`, newest first, at most `limit`."""
    found = object_reader.log(bare, since, until, limit)
    return tuple(BranchCommit(one, _message(bare, one.id), _files(bare, one)) for one in found)


def _message(bare: BareRepository, commit: CommitId) -> str:
    message = bare.objects.commit(commit).message
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else message


def _files(bare: BareRepository, commit: CommitInfo) -> frozenset[str]:
    """The files that differ from the first parent; every file of a first commit."""
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-commit-id")
    trees = (commit.parents[0], commit.id) if commit.parents else ("--root", commit.id)
    names = bare.run(*words, *trees).stdout.split(b"\0")
    return frozenset(name.decode("utf-8", "surrogateescape") for name in names if name)
