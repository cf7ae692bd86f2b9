"""The rollouts of a commit that do not continue by themselves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.staged_rollout import WaitingStage


class StoppedRollouts(msgspec.Struct, frozen=True):
    """The rollouts of `commit` that are stopped as of its last plan: the `halted` ones, which a
    revert ends, and the stages `waiting` for an approval. `proven` are the digests of the proven
    templates in Git, which no revert takes back.
    """

    commit: CommitId
    halted: tuple[HaltedRollout, ...] = ()
    waiting: tuple[WaitingStage, ...] = ()
    proven: Mapping[Key, str] = msgspec.field(default_factory=dict)
