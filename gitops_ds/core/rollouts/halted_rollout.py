"""The input for the revert of a halted rollout: the rollout, and the commits of a branch that may
be reverted.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property

import msgspec

from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.rollouts.rollout_policy import Revert
from gitops_ds.core.rollouts.staged_rollout import Halt
from gitops_ds.core.sources import file_places
from gitops_ds.core.sources.file_places import FilesByPlace
from gitops_ds.core.sources.source_tree import CommitInfo


class RolloutIdentity(msgspec.Struct, frozen=True):
    """The identity of a halted rollout."""

    daemonset: Key
    commit: CommitId
    template: Digest
    halted_at: float


class HaltedRollout(msgspec.Struct, frozen=True):
    """The rollout of a template that the applied commit still has.

    `commit` gave the template, `commits` are all that turned the template before into it, newest
    first, none if unknown; `since` is the last applied one without it (empty: unknown). `template`
    is the digest of the template in Git; `files` are the files and directories that decide it,
    below the followed folder, `own` those of the agent alone. `cluster` is the cluster's name in
    the repository.
    """

    daemonset: Key
    uid: str
    commit: CommitId
    since: str
    template: Digest
    files: frozenset[str]
    halt: Halt
    revert: Revert
    cluster: str = ""
    own: frozenset[str] = frozenset()
    commits: tuple[CommitId, ...] = ()

    @property
    def identity(self) -> RolloutIdentity:
        """The values that differ between two halted rollouts."""
        return RolloutIdentity(self.daemonset, self.commit, self.template, self.halt.at)

    @property
    def due(self) -> float:
        """When the revert may be written, in seconds since 1970."""
        return self.halt.at + self.revert.after


class FileChange(msgspec.Struct, frozen=True):
    """The content of a file before and after a commit, as ids of blobs; empty without the file."""

    before: str
    after: str


class BranchCommit(msgspec.Struct, frozen=True, dict=True):
    """A commit of a branch with its message, and the files that differ from its first parent."""

    info: CommitInfo
    message: str
    changes: Mapping[str, FileChange]

    @property
    def files(self) -> Set[str]:
        """The names of the changed files."""
        return self.changes.keys()

    @cached_property
    def files_by_place(self) -> FilesByPlace:
        """The names of the changed files, by file and folder."""
        return file_places.by_place(self.changes)
