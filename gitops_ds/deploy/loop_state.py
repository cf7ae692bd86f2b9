"""The state machine of a deployer's loop: a state and an input give the next state and the effects.
Pure.

The phases, with the inputs that lead from one to the next:

                ┌──────────────────── ReconciliationEnded ─────────────────────┐
                v                                                              │
            WAITING ──Woken (leading)──> RECONCILING ──Succeeded or Failed─────┤
                │                             └──leadership lost: cancelled────┤
                ├──Woken (standby)────> PREFETCHING ──Prefetched or Failed─────┘
                └──Woken (stopping)───> STOPPED

`Woken` follows every request: `LookRequested` (schedule, webhook, `gitops-ds reconcile`),
`ClusterChanged` (watches, half a second later), a retry, and `TimerFired` for all that is due at a
time. A request during a reconciliation stays set, and the next reconciliation begins at once.

A reconciliation reads Git when that is due (`tip_due`); otherwise it uses the known tip. Its
outcome decides about the next one:

    Settled, Applied without a write    in sync until the cluster changes, `compare_due` or a retry
    Applied with writes                 one more, when the watches have returned what was written
    Applied with skipped objects        retried with back-off if the reason may end by itself
    Failed                              retried with back-off, up to 12 s while the API server is
                                        away and up to 300 s else

Times are seconds of the event loop; fields that end in `_unix` are seconds since 1970, because they
are compared with times that are stored in the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.events.deployer import ReconcileFailed
from gitops_ds.core.events.requests import PushForwarded
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop_inputs
from gitops_ds.deploy.plan import drift

LONGEST_RETRY = 300.0  # seconds
# The maximum of seconds while the API server is unreachable: recovery is detected soon, and each
# attempt is one request.
CLUSTER_RETRY = 12.0
# Seconds after an API server did not respond: until it has loaded RBAC again, it may refuse
# requests.
RETURNING = 60.0
VISIBLE_WITHIN = 30.0  # seconds from a push to when the Git server shows it
SETTLE = 0.5  # seconds after a change in the cluster, so that one reconciliation covers several
JITTER = 0.1  # share of a retry's delay
_TIMER_RESOLUTION = 0.01  # seconds by which a timer may fire early


class Moment(msgspec.Struct, frozen=True):
    """One instant on both clocks: seconds of the event loop, and seconds since 1970."""

    loop: float
    unix: float


class LoopPhase(Enum):
    """The phase of the loop."""

    WAITING = "waiting"
    RECONCILING = "reconciling"
    PREFETCHING = "prefetching"  # a standby reads what a reconciliation would read
    STOPPED = "stopped"


class FailureStreak(msgspec.Struct, frozen=True):
    """Failed reconciliations in a row, and the message of the last one.

    `unreachable_at`: when the API server last did not respond; `held_off_until`: changes in the
    cluster cause no earlier reconciliation.
    """

    count: int = 0
    message: str = ""
    unreachable_at: float = -math.inf
    held_off_until: float = 0.0


class SkippedRetry(msgspec.Struct, frozen=True):
    """When skipped objects are tried again, and the number of tries.

    Until `not_before` the `deferred` objects, which the API server refused, are not sent again.
    """

    attempts: int = 0
    due: float = math.inf
    not_before: float = 0.0
    deferred: Mapping[Key, Skipped] = msgspec.field(default_factory=dict)


class InSync(msgspec.Struct, frozen=True):
    """The cluster matches the commit, as of this generation of the cluster's changes."""

    commit: CommitId
    generation: int


class ExpectedPush(msgspec.Struct, frozen=True):
    """A commit that was pushed, and since when the Git server should show it."""

    commit: CommitId
    since: float


class LoopState(msgspec.Struct, frozen=True):
    """The state of one deployer's loop.

    `retry` is the back-off of failed reconciliations, `damping` that of corrected drift.
    `generation` counts the changes in the cluster; `timer` is when the loop wakes without a
    request. `tip_due` is when Git is read next; `git_failing`: the last response of Git was an
    error. `last_push` is the annotation of the last push that another replica received, None before
    the first reconciliation.
    """

    retry: Backoff
    damping: Backoff
    phase: LoopPhase = LoopPhase.WAITING
    leading: bool = True
    stopping: bool = False
    requested: bool = True
    timer: float = math.inf
    generation: int = 0
    in_sync: InSync | None = None
    compared_unix: float = 0.0
    compare_due_unix: float = math.inf
    tip_due: float = 0.0
    git_failing: bool = False
    failures: FailureStreak = FailureStreak()
    skipped: SkippedRetry = SkippedRetry()
    drift: drift.Rows = msgspec.field(default_factory=dict)
    expected: ExpectedPush | None = None
    last_push: str | None = None

    @property
    def busy(self) -> bool:
        """Whether a reconciliation or a prefetch runs."""
        return self.phase in (LoopPhase.RECONCILING, LoopPhase.PREFETCHING)


def initial(retry: float, longest_damping: float) -> LoopState:
    """The state at the start: leading, with one reconciliation requested.

    `retry` is the first delay after a failure, `longest_damping` the longest delay of a correction
    of drift, in seconds.
    """
    return LoopState(Backoff(retry, LONGEST_RETRY, jitter=JITTER), Backoff(retry, longest_damping))


class LoopTransition(msgspec.Struct, frozen=True):
    """The next state, and the effects in their order."""

    state: LoopState
    effects: tuple[loop_inputs.LoopEffect, ...] = ()


def step(state: LoopState, input: loop_inputs.Input, now: Moment) -> LoopTransition:
    """The next state and the effects of an input."""
    match input:
        case loop_inputs.LookRequested():
            return _request(replace(state, tip_due=0.0))
        case loop_inputs.PushExpected(commit=commit):
            return _expect(state, commit, now)
        case loop_inputs.PushReported():
            return _push_reported(state, input, now)
        case loop_inputs.ClusterChanged():
            return _cluster_changed(state, now)
        case loop_inputs.TimerFired() | loop_inputs.ReconcileRequested():
            return _request(state)
        case loop_inputs.StopRequested():
            return _request(replace(state, stopping=True))
        case loop_inputs.LeadershipGained():
            forget = (loop_inputs.ForgetDeployerState(), loop_inputs.ForgetReports())
            leading = replace(state, leading=True, in_sync=None, tip_due=0.0)
            return _after(LoopTransition(leading, forget), _request)
        case loop_inputs.LeadershipLost():
            return LoopTransition(
                replace(state, leading=False), (loop_inputs.CancelReconciliation(),)
            )
        case loop_inputs.Woken():
            return _woken(state)
        case loop_inputs.ReconciliationEnded():
            return _ended(state, now)
        case _:
            return _course(state, input, now)


def _course(
    state: LoopState,
    input: loop_inputs.CourseInput,
    now: Moment,
) -> LoopTransition:
    match input:
        case loop_inputs.TipRequested():
            return LoopTransition(replace(state, tip_due=math.inf))
        case loop_inputs.TipReceived(tip=tip):
            return _look_again(replace(state, git_failing=False), tip, now)
        case loop_inputs.GitFailed():
            return LoopTransition(replace(state, git_failing=True))
        case loop_inputs.Replanned():
            skipped = replace(state.skipped, due=math.inf)
            return LoopTransition(replace(state, in_sync=None, skipped=skipped))
        case loop_inputs.RevisionSelected():
            skipped = replace(state.skipped, attempts=0, not_before=0.0)
            return LoopTransition(replace(state, skipped=skipped))
        case loop_inputs.DriftReverted(key=key):
            rows = drift.rows_after(state.drift, (key,), now.loop, state.damping)
            return LoopTransition(replace(state, drift=rows))
        case loop_inputs.Settled(tip=tip, generation=generation):
            return LoopTransition(replace(state, in_sync=InSync(tip, generation)))
        case loop_inputs.PlanApplied():
            return _applied(state, input, now)
        case loop_inputs.Prefetched(tip=tip, generation=generation):
            # Leadership gained during the prefetch: nothing is settled before a reconciliation.
            in_sync = None if state.leading else InSync(tip, generation)
            return LoopTransition(replace(_recovered(state), in_sync=in_sync))
        case loop_inputs.Succeeded():
            succeeded = replace(state, failures=replace(state.failures, held_off_until=0.0))
            return LoopTransition(succeeded if state.git_failing else _recovered(succeeded))
        case loop_inputs.ReconciliationFailed():
            return _failed(state, input, now)


def _after(
    transition: LoopTransition, following: Callable[[LoopState], LoopTransition]
) -> LoopTransition:
    """A transition and one that follows it at once."""
    second = following(transition.state)
    return LoopTransition(second.state, (*transition.effects, *second.effects))


def _request(state: LoopState) -> LoopTransition:
    return LoopTransition(replace(state, requested=True), (loop_inputs.Wake(),))


def _wake_at(state: LoopState, at: float) -> LoopTransition:
    """Sets the timer to this time, unless an earlier one is set."""
    if state.timer <= at:
        return LoopTransition(state)
    return LoopTransition(replace(state, timer=at), (loop_inputs.SetTimer(at),))


def _expect(state: LoopState, commit: CommitId | None, now: Moment) -> LoopTransition:
    expected = ExpectedPush(commit, now.loop) if commit else state.expected
    return _request(replace(state, expected=expected, tip_due=0.0))


def _push_reported(
    state: LoopState, report: loop_inputs.PushReported, now: Moment
) -> LoopTransition:
    """A push that another replica received. The annotation at the first reconciliation is older
    than this replica's own read of Git.
    """
    noted = replace(state, last_push=report.annotation)
    if state.last_push is None or report.annotation in ("", state.last_push):
        return LoopTransition(noted)
    event = loop_inputs.Publish(PushForwarded(now.unix, report.commit))
    return _after(LoopTransition(noted, (event,)), lambda after: _expect(after, report.commit, now))


def _cluster_changed(state: LoopState, now: Moment) -> LoopTransition:
    """Requests a reconciliation soon; while the API server refuses the requests of each one, not
    before its back-off.
    """
    changed = replace(state, generation=state.generation + 1)
    return _wake_at(changed, max(now.loop + SETTLE, state.failures.held_off_until))


def _woken(state: LoopState) -> LoopTransition:
    """The next phase; it serves every request and timer so far."""
    phase = LoopPhase.RECONCILING if state.leading else LoopPhase.PREFETCHING
    phase = LoopPhase.STOPPED if state.stopping else phase
    served = replace(state, phase=phase, requested=False, timer=math.inf)
    return LoopTransition(served, (loop_inputs.SetTimer(math.inf),))


def _ended(state: LoopState, now: Moment) -> LoopTransition:
    """Returns to waiting. The timers that the reconciliation replaced at its start are set
    again.
    """
    waiting = replace(state, phase=LoopPhase.WAITING)
    if state.phase is not LoopPhase.RECONCILING or not state.leading:
        return LoopTransition(waiting)
    due = [at for at in (state.skipped.due, state.tip_due) if now.loop < at < math.inf]
    return _wake_at(waiting, min(due)) if due else LoopTransition(waiting)


def _look_again(state: LoopState, tip: CommitId, now: Moment) -> LoopTransition:
    """Schedules another read for a pushed commit, with increasing delays, while the Git server may
    not show it yet.
    """
    if state.expected is None or state.phase is not LoopPhase.RECONCILING:
        return LoopTransition(state)
    waited = now.loop - state.expected.since
    if tip == state.expected.commit or waited >= VISIBLE_WITHIN:
        return LoopTransition(replace(state, expected=None))
    at = now.loop + min(max(waited, 0.5), VISIBLE_WITHIN - waited + 0.1)
    return _wake_at(replace(state, tip_due=min(state.tip_due, at)), at)


def _recovered(state: LoopState) -> LoopState:
    return replace(state, failures=replace(state.failures, count=0, message=""))


def _failed(
    state: LoopState, failed: loop_inputs.ReconciliationFailed, now: Moment
) -> LoopTransition:
    """Schedules a retry if time may help; the same message is published once, not at each
    attempt.
    """
    error, before = failed.error, state.failures
    unreachable = isinstance(error, errors.ClusterUnreachable | errors.ServerFault)
    away = now.loop if unreachable else before.unreachable_at
    returning = isinstance(error, errors.ClusterError) and now.loop - away < RETURNING
    count, held_off, wait = before.count + 1, before.held_off_until, None
    transition = LoopTransition(state)
    if error.retryable or returning:
        backoff = replace(state.retry, longest=CLUSTER_RETRY) if returning else state.retry
        wait = backoff.delay(count, failed.chance)
        at = now.loop + wait
        tip_due = min(state.tip_due, at) if isinstance(error, errors.SourceError) else state.tip_due
        transition = _wake_at(replace(state, tip_due=tip_due), at)
    if isinstance(error, errors.ClusterError) and count > 1:
        held_off = now.loop + (wait or state.retry.delay(count, failed.chance))
    effects = [*transition.effects]
    if str(error) != before.message:
        effects.append(loop_inputs.Publish(ReconcileFailed(now.unix, str(error), wait)))
    failures = FailureStreak(count, str(error), away, held_off)
    return LoopTransition(
        replace(transition.state, failures=failures), (*effects, loop_inputs.ForgetDeployerState())
    )


def _applied(state: LoopState, applied: loop_inputs.PlanApplied, now: Moment) -> LoopTransition:
    """Schedules the next comparison: after writes, when the watches have returned them."""
    skipped = _retry_skipped(state, applied, now)
    after = replace(
        state,
        compared_unix=now.unix,
        compare_due_unix=applied.compare_due_unix,
        skipped=skipped,
    )
    if applied.writes:
        return _cluster_changed(after, now)
    return LoopTransition(replace(after, in_sync=InSync(applied.tip, applied.generation)))


def _retry_skipped(state: LoopState, applied: loop_inputs.PlanApplied, now: Moment) -> SkippedRetry:
    """Schedules the retry of skipped objects: soon for those that wait for others, with back-off
    for refused ones.
    """
    before, refusals = state.skipped, applied.refusals
    deferred = {
        refusal.key: refusal
        for refusal in refusals
        if refusal.key and refusal.reason.effect.deferrable
    }
    if now.loop < before.not_before and deferred.keys() <= before.deferred.keys():
        # The reconciliation had another cause: the refused objects were not tried.
        return replace(before, due=before.not_before)
    retryable = any(refusal.reason.effect.retryable for refusal in refusals)
    attempts = before.attempts + 1 if retryable else 0
    due, not_before, kept = before.due, 0.0, dict[Key, Skipped]()
    if attempts:
        due = now.loop + state.retry.delay(attempts, applied.chance)
        if attempts > 1:
            not_before, kept = due, deferred
    elif any(refusal.reason is SkipReason.WAITS for refusal in refusals):
        due = now.loop + state.retry.first
    contested = [
        refusal.key
        for refusal in refusals
        if refusal.reason is SkipReason.CONTESTED and refusal.key
    ]
    due = min(due, drift.correction_due(state.drift, contested))
    return SkippedRetry(attempts, due, not_before, kept)


# The queries of a reconciliation.


def tip_is_due(state: LoopState, now: float) -> bool:
    """Whether this reconciliation reads Git."""
    return now + _TIMER_RESOLUTION >= state.tip_due


def is_settled(state: LoopState, tip: CommitId, now: float) -> bool:
    """Whether neither the commit nor the cluster has changed since the last comparison, and no
    retry is due.
    """
    return state.in_sync == InSync(tip, state.generation) and now < state.skipped.due


def comparison_is_due(state: LoopState, now_unix: float) -> bool:
    """Whether a comparison of the cluster is due without a change.

    It is due after the clock was set back, too: the stored time may be far in the future.
    """
    return not state.compared_unix <= now_unix < state.compare_due_unix


def deferred(state: LoopState, now: float) -> Mapping[Key, Skipped]:
    """The refusals of the API server that are not tried again now."""
    return state.skipped.deferred if now < state.skipped.not_before else {}


def contested(state: LoopState, now: float) -> frozenset[Key]:
    """The objects whose drift is not corrected now."""
    return drift.damped(state.drift, now)
