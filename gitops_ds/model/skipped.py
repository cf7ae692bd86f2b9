"""What a plan leaves out, and what happens to drift: known without the manifests of a commit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import SkipReason


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part of the plan that is not applied, its reason, and in the message what to do about it.
    `key` is None for the plan as a whole; then `held` are the objects that wait.
    """

    reason: SkipReason
    message: str
    key: Key | None = None
    held: tuple[Key, ...] = ()


class DriftPolicy(StrEnum):
    """What is done about a change that somebody made in the cluster (annotation
    `gitops-ds.io/drift`).
    """

    CORRECT = "correct"
    REPORT = "report"
    HOLD = "hold"
