"""The context of a plan: the owner, the options for taking over, forcing and deleting with their
limits, and the results of dry runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum

import msgspec

from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.permissions import EVERYTHING, AllowList, Impersonation


class Policy(Enum):
    """What pruning does with an object.

    Delete it, then its dependents (cascade), or the dependents first (foreground); keep its pods
    (orphan); keep it (disabled).
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """

    CASCADE = "cascade"
    FOREGROUND = "foreground"
    ORPHAN = "orphan"
    DISABLED = "disabled"


class AddedFields(Enum):
    """The agents from whose pod template fields are removed that people added in the cluster: those
    with a rollout policy, or all.
    """

    STAGED = "staged"
    ALL = "all"


class Limit(msgspec.Struct, frozen=True):
    """A maximum: a `number`, else a `share` of the total (0 to 1)."""

    share: float = 1.0
    number: int | None = None

    def of(self, total: int) -> float:
        """The absolute number for that total."""
        return self.share * total if self.number is None else self.number

    def __str__(self) -> str:
        """The text of the setting."""
        return f"{self.share * 100:g}%" if self.number is None else str(self.number)


class Guards(msgspec.Struct, frozen=True):
    """`prune` enables deletions. Without approval only a limited number of nodes may lose an agent:
    a `share` of all (0 to 1), or `nodes`; by deletions and updates together.

    `deletes` limits how many of our objects are deleted at once; None: half of them, or all without
    `empty`. With `empty`, a commit without objects deletes nothing. `policy` is the default for
    objects without one.
    """

    prune: bool = False
    share: float = 0.2
    nodes: int | None = None
    deletes: Limit | None = None
    empty: bool = True
    policy: Policy = Policy.CASCADE

    @property
    def deleted(self) -> Limit:
        """How many of our objects may be deleted at once."""
        return self.deletes or Limit(0.5 if self.empty else 1.0)

    @property
    def lost(self) -> Limit:
        """How many nodes may lose an agent."""
        return Limit(self.share, self.nodes)


class OtherOwners(msgspec.Struct, frozen=True):
    """The other owners of the same service: Git and templates in the cluster may contain the same
    object.

    `ahead` has the objects of owners with a higher priority, with that owner. `heirs` are all
    objects of others; they are not deleted when they leave our source. Objects of an owner in
    `behind` may be taken over. The view is `complete` when every owner has published its objects;
    nothing is deleted before.
    """

    ahead: Mapping[Key, str] = msgspec.field(default_factory=dict)
    heirs: frozenset[Key] = frozenset()
    behind: frozenset[str] = frozenset()
    complete: bool = True


ALONE = OtherOwners()
HOLD_SECONDS = 24 * 3600.0


class ApplyOptions(msgspec.Struct, frozen=True):
    """The options of an apply, from the settings, the command line and the requests.

    `approved` is the hash of an approved plan. `patience`: seconds to wait for the dependencies of
    a change; `go_back`: an older commit is permitted. `hold_for`: seconds of a pause before drift
    is corrected; `compare_every`: seconds between comparisons of an unchanged cluster. Drift of
    `contested` objects returns at once and is not corrected now. `live_annotations`: annotations
    that control the deployer are also honored if they were written in the cluster. `deferred` are
    refusals of the API server that are not retried now. `approvers` are the names of the
    repository's approvers of stages. `added_fields`: of which agents fields that people added in
    the cluster are drift. `held` are the first digits of commits on hold: templates that they gave
    are not applied; `hold_reasons` has the reasons that people stated.
    `is_shown_only`: the plan is not applied, and may lack the state of the service.
    """

    guards: Guards = Guards()
    adopt: bool = False
    force_conflicts: bool = False
    drift: DriftPolicy = DriftPolicy.CORRECT
    approved: str = ""
    patience: float = 300.0
    go_back: bool = False
    hold_for: float = HOLD_SECONDS
    compare_every: float = 600.0
    ignore: tuple[IgnoreRule, ...] = ()
    impersonation: Impersonation | None = None
    allowed: AllowList = EVERYTHING
    other_owners: OtherOwners = ALONE
    contested: frozenset[Key] = frozenset()
    live_annotations: bool = True
    deferred: Mapping[Key, Skipped] = msgspec.field(default_factory=dict)
    approvers: frozenset[str] = frozenset()
    added_fields: AddedFields = AddedFields.STAGED
    held: tuple[str, ...] = ()
    is_shown_only: bool = False
    hold_reasons: Mapping[str, str] = msgspec.field(default_factory=dict)


class PlanContext(msgspec.Struct, frozen=True):
    """The inputs of a plan besides the manifests and the live objects.

    `state` is the stored state: the digests that were applied, the approved deletions, the known
    drift. `now`, in seconds since 1970, determines the end of a pause. `drift_of_agent` is the
    repository's policy for an agent. `owners` describes other owners of gitops-ds. `inventory`
    holds the objects that were applied and not yet deleted, None if it was lost.
    """

    stamp: Stamp
    options: ApplyOptions = ApplyOptions()
    state: DeployerState = msgspec.field(default_factory=DeployerState)
    now: float = 0.0
    drift_of_agent: Mapping[str, DriftPolicy] = msgspec.field(default_factory=dict)
    inventory: Set[Key] | None = None
    owners: Mapping[str, str] = msgspec.field(default_factory=dict)


class FieldConflict(msgspec.Struct, frozen=True):
    """A field that another manager owns with another value; the field as the API server writes
    it.
    """

    manager: str
    field: str


class DryRunResult(msgspec.Struct, frozen=True):
    """The result of a dry run: the resulting object, the fields in conflict, or the reason of a
    refusal. `created` is the object as a creation would store it, without fields of other writers;
    None if that is unknown.
    """

    body: Body | None = None
    conflicts: tuple[FieldConflict, ...] = ()
    refused: str = ""
    created: Body | None = None


NO_ANSWERS: Mapping[Key, DryRunResult] = {}
