"""The inputs and the effects of the state machine of a deployer's loop (`loop_state`). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.events.base import Event
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.skip_reasons import Skipped

# Inputs: requests.


class LookRequested(msgspec.Struct, frozen=True):
    """A reconciliation that reads Git is requested."""


class ReconcileRequested(msgspec.Struct, frozen=True):
    """A reconciliation of the known tip is requested: a late response of Git has arrived."""


class PushExpected(msgspec.Struct, frozen=True):
    """A push was received, maybe before the Git server shows its commit."""

    commit: CommitId | None


class PushReported(msgspec.Struct, frozen=True):
    """The annotation in which another replica reports the last push, and its commit."""

    annotation: str
    commit: CommitId | None


class ClusterChanged(msgspec.Struct, frozen=True):
    """An object that a plan reads has changed."""


class TimerFired(msgspec.Struct, frozen=True):
    """The timer of the last `SetTimer` fired."""


class StopRequested(msgspec.Struct, frozen=True):
    """The loop is to end after the running reconciliation."""


class LeadershipGained(msgspec.Struct, frozen=True):
    """This replica reconciles from now on."""


class LeadershipLost(msgspec.Struct, frozen=True):
    """This replica only prefetches from now on."""


# Inputs: the course of a reconciliation.


class Woken(msgspec.Struct, frozen=True):
    """The loop is ready to serve the requests so far."""


class TipRequested(msgspec.Struct, frozen=True):
    """A request for the tip of the branch is sent to Git."""


class TipReceived(msgspec.Struct, frozen=True):
    """The tip from Git."""

    tip: CommitId


class GitFailed(msgspec.Struct, frozen=True):
    """Git returned an error, or the files of a commit are not available."""


class Replanned(msgspec.Struct, frozen=True):
    """The cluster may be out of sync: a plan is made."""


class RevisionSelected(msgspec.Struct, frozen=True):
    """A revision was selected for a new tip, or again for the same one."""


class DriftReverted(msgspec.Struct, frozen=True):
    """A correction of drift was written."""

    key: Key


class Settled(msgspec.Struct, frozen=True):
    """No write is possible now for this commit, as of this generation."""

    tip: CommitId
    generation: int


class PlanApplied(msgspec.Struct, frozen=True):
    """A plan was applied, as of this generation.

    `compare_due_unix`: when the cluster is compared again without a change. `chance` is a number in
    [0, 1).
    """

    tip: CommitId
    generation: int
    writes: int
    refusals: Sequence[Skipped]
    compare_due_unix: float
    chance: float


class Prefetched(msgspec.Struct, frozen=True):
    """A standby has read all that a reconciliation reads, as of this generation."""

    tip: CommitId
    generation: int


class Succeeded(msgspec.Struct, frozen=True):
    """The reconciliation ended without an error."""


class ReconciliationFailed(msgspec.Struct, frozen=True):
    """A reconciliation or a prefetch raised an error; `chance` is a number in [0, 1)."""

    error: errors.GitopsError
    chance: float


class ReconciliationEnded(msgspec.Struct, frozen=True):
    """The reconciliation or prefetch has ended, with any outcome, or was cancelled."""


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


class Wake(msgspec.Struct, frozen=True):
    """Feed `Woken` as soon as no reconciliation runs."""


class SetTimer(msgspec.Struct, frozen=True):
    """Feed `TimerFired` at this time in place of any earlier timer; never if it is infinite."""

    at: float


class CancelReconciliation(msgspec.Struct, frozen=True):
    """Cancel the running reconciliation: another replica leads."""


class ForgetDeployerState(msgspec.Struct, frozen=True):
    """Read the stored state again: another process may have written it."""


class ForgetReports(msgspec.Struct, frozen=True):
    """Report commits and signatures again: another replica reported since."""


class Publish(msgspec.Struct, frozen=True):
    """Publish an event."""

    event: Event


LoopEffect = Wake | SetTimer | CancelReconciliation | ForgetDeployerState | ForgetReports | Publish
