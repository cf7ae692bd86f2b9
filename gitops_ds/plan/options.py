"""On which terms a plan is made: who applies, what may be taken, forced or deleted; and what dry
runs said.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from gitops_ds.model.deployment import KnownDrift
from gitops_ds.model.objects import Body, Digest, Key
from gitops_ds.model.skipped import DriftPolicy, Skipped
from gitops_ds.plan.allow_list import EVERYTHING, AllowList
from gitops_ds.plan.impersonation import Impersonation
from gitops_ds.plan.prune import Guards
from gitops_ds.plan.tracking_labels import Stamp


@dataclass(frozen=True, slots=True)
class OtherOwners:
    """The other owners of the same service, where Git and templates in the cluster may name the
    same object.

    `ahead` are the objects that an owner before us names, with that owner: they are its. `heirs`
    are all that others name: what leaves us and is theirs is left to them. Objects of an owner in
    `behind` may be taken. Until all have told what they name, the view is not `complete`, and
    nothing is deleted.
    """

    ahead: Mapping[Key, str] = field(default_factory=dict)
    heirs: frozenset[Key] = frozenset()
    behind: frozenset[str] = frozenset()
    complete: bool = True


ALONE = OtherOwners()
HOLD_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class PlanContext:
    """`applied` holds the digest of each manifest as it was last applied; `approved` the hash of a
    plan that a person approved.

    `condemned` are the objects whose deletion was approved before, and `left` is the drift that
    stood then; `now` and `hold_for` in seconds say when what is held is over. `drift_of_agent` is
    what the repository says of an agent. `inventory` holds what was applied and not yet deleted,
    None where that was lost; `agents` which agent of the repository each of these came from. Drift
    of `contested` objects comes back at once and is not corrected now. `live_words`: annotations
    that steer us count also where they were written in the cluster. `deferred` are refusals of the
    API server that are not tried again now.
    """

    stamp: Stamp
    guards: Guards = Guards()
    adopt: bool = False
    force_conflicts: bool = False
    drift: DriftPolicy = DriftPolicy.CORRECT
    approved: str = ""
    applied: Mapping[Key, Digest] = field(default_factory=dict)
    condemned: frozenset[Key] = frozenset()
    left: Mapping[Key, KnownDrift] = field(default_factory=dict)
    now: float = 0.0
    hold_for: float = HOLD_SECONDS
    drift_of_agent: Mapping[str, DriftPolicy] = field(default_factory=dict)
    impersonation: Impersonation | None = None
    allowed: AllowList = EVERYTHING
    neighbours: OtherOwners = ALONE
    contested: frozenset[Key] = frozenset()
    live_words: bool = True
    deferred: Mapping[Key, Skipped] = field(default_factory=dict)
    inventory: Set[Key] | None = None
    agents: Mapping[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another manager owns with another value; the field in the words of the API
    server.
    """

    manager: str
    field: str


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What the API server said to a dry run: the object as it would be, or which fields are in
    conflict, or why it is refused.
    """

    body: Body | None = None
    conflicts: tuple[FieldConflict, ...] = ()
    refused: str = ""
