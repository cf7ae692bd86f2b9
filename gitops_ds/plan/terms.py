"""On which terms a plan is made: who applies, what may be taken, forced or deleted; and what dry runs said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gitops_ds.model.objects import Body, Digest, Key
from gitops_ds.plan.prune import Guards
from gitops_ds.plan.stamps import Stamp


class Drift(StrEnum):
    """What is done about a change that somebody made in the cluster (annotation `gitops-ds.io/drift`)."""

    CORRECT = "correct"
    REPORT = "report"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Terms:
    """`applied` holds the digest of each manifest as it was last applied; `approved` the hash of a plan that a person approved."""

    stamp: Stamp
    guards: Guards = Guards()
    adopt: bool = False
    force_conflicts: bool = False
    drift: Drift = Drift.CORRECT
    approved: str = ""
    applied: Mapping[Key, Digest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another manager owns with another value; the field in the words of the API server."""

    manager: str
    field: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said to a dry run: the object as it would be, or which fields are in conflict, or why it is refused."""

    body: Body | None = None
    conflicts: tuple[FieldConflict, ...] = ()
    refused: str = ""
