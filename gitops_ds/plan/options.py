"""The context of a plan: the owner, what may be taken over, forced or deleted; and the results of
dry runs.
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
    """The other owners of the same service: Git and templates in the cluster may name the same
    object.

    `ahead` holds the objects of owners with a higher priority, with that owner. `heirs` are all
    objects that others name; they are not deleted when they leave our source. Objects of an owner
    in `behind` may be taken over. The view is `complete` when every owner has published its
    objects; nothing is deleted before.
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

    `condemned` are the objects whose deletion was approved before, and `left` is the drift known
    then; `now` (since 1970) and `hold_for` in seconds determine the end of a pause.
    `drift_of_agent` is the repository's policy for an agent. `inventory` holds the objects that
    were applied and not yet deleted, None if it was lost; `agents` the agent of each of them. Drift
    of `contested` objects returns at once and is not corrected now. `live_words`: annotations that
    control the deployer are also honored if they were written in the cluster. `deferred` are
    refusals of the API server that are not retried now.
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
    """A field that another manager owns with another value; the field as the API server writes
    it.
    """

    manager: str
    field: str


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The API server's answer to a dry run: the resulting object, the fields in conflict, or the
    reason of a refusal.
    """

    body: Body | None = None
    conflicts: tuple[FieldConflict, ...] = ()
    refused: str = ""
