"""Approvals of the stages of a staged rollout, and the stages that wait for one."""

from __future__ import annotations

from collections.abc import Set

import msgspec

from gitops_ds.model.objects import CommitId, Key

ANNOTATION = "annotation"
TRAILER = "Gitops-Ds-Approve"  # of a signed commit


class StageApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """An approval of a stage: the name of `approval.from`, the approver, and how it was given.

    `hash` is that of the target, empty for any target of the revision that holds the approval.
    """

    stage: str
    hash: str = ""
    approver: str = msgspec.field(name="from", default="")
    by: str = ""
    how: str = ANNOTATION

    @property
    def text(self) -> str:
        """`ada@example.com (team-gpu), commit 0123456789ab`."""
        who = f"{self.by} ({self.approver})" if self.approver else self.by
        return ", ".join(filter(None, (who, self.how)))


class Approver(msgspec.Struct, frozen=True):
    """A name of `approval.from` in the settings of a repository.

    `keys` are fingerprints, and principals of ssh keys; `users` and `teams` are those of the forge.
    """

    name: str
    keys: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()


class WaitingStage(msgspec.Struct, frozen=True):
    """The current stage of a rollout, which needs an approval.

    `owner` is the uid of the DaemonSet. `revision`, `uid` and `hash` are those of the target
    revision, `commit` is the first applied one with the template, `since` the last applied one
    without it (empty: unknown). `approvers` are the names of `approval.from`. `files` are the files
    that the template is rendered from. `annotation` is the present text of the annotation with the
    approvals.
    """

    daemonset: Key
    owner: str
    revision: str
    uid: str
    hash: str
    commit: CommitId
    since: str
    stage: str
    approvers: tuple[str, ...]
    files: Set[str] = frozenset()
    annotation: str = ""

    @property
    def path(self) -> str:
        """`NAMESPACE/DAEMONSET/STAGE`, as in the trailer of a commit."""
        return f"{self.daemonset.namespace}/{self.daemonset.name}/{self.stage}"
