"""What a deployer's loop reacts to, and what its state machine (`loop_state`) has the loop do.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops_ds import errors
from gitops_ds.model.events.base import Event
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.skipped import Skipped

# Inputs: requests.


@dataclass(frozen=True, slots=True)
class LookRequested:
    """A reconciliation that reads Git is requested."""


@dataclass(frozen=True, slots=True)
class ReconcileRequested:
    """A reconciliation of the known tip is requested: a late answer of Git has arrived."""


@dataclass(frozen=True, slots=True)
class PushExpected:
    """A push was received, maybe before the Git server shows its commit."""

    commit: CommitId | None


@dataclass(frozen=True, slots=True)
class PushReported:
    """The annotation in which another replica reports the last push, and the commit it names."""

    annotation: str
    commit: CommitId | None


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """An object that a plan reads has changed."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer of the last `SetTimer` fired."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The loop is to end after the running reconciliation."""


@dataclass(frozen=True, slots=True)
class LeadershipGained:
    """This replica reconciles from now on."""


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """This replica only prefetches from now on."""


# Inputs: the course of a reconciliation.


@dataclass(frozen=True, slots=True)
class Woken:
    """The loop is ready to serve the requests so far."""


@dataclass(frozen=True, slots=True)
class TipRequested:
    """A request for the tip of the branch is sent to Git."""


@dataclass(frozen=True, slots=True)
class TipReceived:
    """The tip that Git answered with."""

    tip: CommitId


@dataclass(frozen=True, slots=True)
class GitFailed:
    """Git answered with an error, or did not give the files of a commit."""


@dataclass(frozen=True, slots=True)
class Replanned:
    """The cluster is not known to be in sync: a plan is made."""


@dataclass(frozen=True, slots=True)
class RevisionSelected:
    """A revision was selected for a new tip, or again for the same one."""


@dataclass(frozen=True, slots=True)
class DriftReverted:
    """A correction of drift was written."""

    key: Key


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing can be written now for this commit, as of this generation."""

    tip: CommitId
    generation: int


@dataclass(frozen=True, slots=True)
class PlanApplied:
    """A plan was applied, as of this generation.

    `compare_due_unix`: when the cluster is compared again though nothing changes. `chance` is a
    number in [0, 1).
    """

    tip: CommitId
    generation: int
    writes: int
    refusals: Sequence[Skipped]
    compare_due_unix: float
    chance: float


@dataclass(frozen=True, slots=True)
class Prefetched:
    """A standby has read all that a reconciliation reads, as of this generation."""

    tip: CommitId
    generation: int


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The reconciliation ended without an error."""


@dataclass(frozen=True, slots=True)
class ReconciliationFailed:
    """A reconciliation or a prefetch raised an error; `chance` is a number in [0, 1)."""

    error: errors.GitopsError
    chance: float


@dataclass(frozen=True, slots=True)
class ReconciliationEnded:
    """The reconciliation or prefetch is over, whatever its outcome; a cancelled one as well."""


CourseInput = (
    TipRequested
    | TipReceived
    | GitFailed
    | Replanned
    | RevisionSelected
    | DriftReverted
    | Settled
    | PlanApplied
    | Prefetched
    | Succeeded
    | ReconciliationFailed
)
Input = (
    CourseInput
    | LookRequested
    | ReconcileRequested
    | PushExpected
    | PushReported
    | ClusterChanged
    | TimerFired
    | StopRequested
    | LeadershipGained
    | LeadershipLost
    | Woken
    | ReconciliationEnded
)


# Effects.


@dataclass(frozen=True, slots=True)
class Wake:
    """Feed `Woken` as soon as no reconciliation runs."""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Feed `TimerFired` at this time in place of any earlier timer; never where it is infinite."""

    at: float


@dataclass(frozen=True, slots=True)
class CancelReconciliation:
    """Cancel the running reconciliation: another replica leads."""


@dataclass(frozen=True, slots=True)
class ForgetDeployerState:
    """Read the stored state again: another process may have written it."""


@dataclass(frozen=True, slots=True)
class ForgetReports:
    """Report commits and signatures again: another replica reported since."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event."""

    event: Event


LoopEffect = Wake | SetTimer | CancelReconciliation | ForgetDeployerState | ForgetReports | Publish
