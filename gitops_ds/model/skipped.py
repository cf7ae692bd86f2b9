"""The skipped parts of a plan, and the drift policy."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import SkipReason


class Skipped(msgspec.Struct, frozen=True):
    """A part of the plan that is not applied, its reason, and a message with the advice. `key` is
    None for the plan as a whole; then `held` are the objects that wait.
    """

    reason: SkipReason
    message: str
    key: Key | None = None
    held: tuple[Key, ...] = ()


class DriftPolicy(StrEnum):
    """The policy for a change that was made in the cluster (annotation `gitops-ds.io/drift`)."""

    CORRECT = "correct"
    REPORT = "report"
    HOLD = "hold"
