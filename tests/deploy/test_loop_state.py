"""The schedule of a deployer's loop as a table: state, input, next state and effects."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core import errors
from gitops_ds.core.events.deployer import ReconcileFailed
from gitops_ds.core.events.requests import PushForwarded
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop_inputs, loop_state
from gitops_ds.deploy.loop_inputs import (
    CancelReconciliation,
    ClusterChanged,
    DriftReverted,
    ForgetDeployerState,
    ForgetReports,
    GitFailed,
    Input,
    LeadershipGained,
    LeadershipLost,
    LookRequested,
    LoopEffect,
    PlanApplied,
    Prefetched,
    Publish,
    PushExpected,
    PushReported,
    ReconcileRequested,
    ReconciliationEnded,
    ReconciliationFailed,
    Replanned,
    RevisionSelected,
    SetTimer,
    Settled,
    StopRequested,
    Succeeded,
    TimerFired,
    TipReceived,
    TipRequested,
    Wake,
    Woken,
)
from gitops_ds.deploy.loop_state import (
    ExpectedPush,
    FailureStreak,
    InSync,
    LoopPhase,
    LoopState,
    Moment,
    SkippedRetry,
)

NOW = Moment(100.0, 1e9)
A, B = CommitId("a" * 40), CommitId("b" * 40)
KEY, OTHER = (Key("apps", "DaemonSet", "default", name) for name in ("one", "other"))
NEW = loop_state.initial(5.0, 600.0)
IDLE = replace(NEW, requested=False, tip_due=math.inf, last_push="", in_sync=InSync(A, 0))
RUNNING = replace(IDLE, phase=LoopPhase.RECONCILING)
STANDBY = replace(IDLE, leading=False)
AWAY, REFUSED = errors.ClusterUnreachable("no answer"), errors.Forbidden("no right")
GIT_AWAY, REWOUND = errors.SourceUnreachable("git is away"), errors.HistoryRewound("went back")
DENIED = Skipped(SkipReason.REFUSED, "the API server refuses it", KEY)
DENIED_TOO = Skipped(SkipReason.CONFLICT, "another manager owns it", OTHER)
WAITS = Skipped(SkipReason.WAITS, "another agent is not ready", KEY)
CONTESTED = Skipped(SkipReason.CONTESTED, "recurring drift", KEY)
OFF = Skipped(SkipReason.PRUNE_OFF, "pruning is off", KEY)


def applied(writes: int, *refusals: Skipped) -> PlanApplied:
    return PlanApplied(A, 0, writes, refusals, 1e9 + 600, 0.0)


def failed(error: errors.GitopsError) -> ReconciliationFailed:
    return ReconciliationFailed(error, 0.0)


def streak(count: int, error: errors.GitopsError | None = None, **more: float) -> FailureStreak:
    return FailureStreak(count, str(error) if error else "", **more)


def published(error: errors.GitopsError, wait: float | None) -> Publish:
    return Publish(ReconcileFailed(NOW.unix, str(error), wait))


WAKE, FORGET = Wake(), ForgetDeployerState()
COMPARED: dict[str, Any] = {"compared_unix": 1e9, "compare_due_unix": 1e9 + 600}
SETTLED = {**COMPARED, "in_sync": InSync(A, 0)}
RETRYING = SkippedRetry(2, 110.0, 110.0, {KEY: DENIED})
UNTIL_RETRY = replace(RUNNING, skipped=replace(RETRYING, due=math.inf))
ROWS: list[tuple[str, LoopState, Input, dict[str, Any], list[LoopEffect]]] = [
    # requests
    ("a request reads Git", IDLE, LookRequested(), {"requested": True, "tip_due": 0.0}, [WAKE]),
    ("a late answer needs no look", IDLE, ReconcileRequested(), {"requested": True}, [WAKE]),
    ("a request while running stays", RUNNING, TimerFired(), {"requested": True}, [WAKE]),
    ("stop", RUNNING, StopRequested(), {"requested": True, "stopping": True}, [WAKE]),
    (
        "a push is expected until Git shows its commit",
        IDLE,
        PushExpected(B),
        {"requested": True, "tip_due": 0.0, "expected": ExpectedPush(B, 100.0)},
        [WAKE],
    ),
    (
        "a push without a commit keeps the one that is expected",
        replace(IDLE, expected=ExpectedPush(A, 90.0)),
        PushExpected(None),
        {"requested": True, "tip_due": 0.0},
        [WAKE],
    ),
    (
        "the first report of a push is older than our look",
        replace(RUNNING, last_push=None),
        PushReported("now", A),
        {"last_push": "now"},
        [],
    ),
    ("the same report again", replace(RUNNING, last_push="x"), PushReported("x", A), {}, []),
    (
        "a report without a push",
        replace(RUNNING, last_push="x"),
        PushReported("", None),
        {"last_push": ""},
        [],
    ),
    (
        "another report",
        replace(RUNNING, last_push="x"),
        PushReported("y", B),
        {
            "last_push": "y",
            "requested": True,
            "tip_due": 0.0,
            "expected": ExpectedPush(B, 100.0),
        },
        [Publish(PushForwarded(NOW.unix, B)), WAKE],
    ),
    (
        "changes in the cluster are collected",
        IDLE,
        ClusterChanged(),
        {"generation": 1, "timer": 100.5},
        [SetTimer(100.5)],
    ),
    (
        "an earlier timer stays",
        replace(IDLE, timer=100.2),
        ClusterChanged(),
        {"generation": 1},
        [],
    ),
    (
        "a later timer is moved",
        replace(IDLE, timer=200.0),
        ClusterChanged(),
        {"generation": 1, "timer": 100.5},
        [SetTimer(100.5)],
    ),
    (
        "no change wakes earlier than the back-off of an API server that refuses",
        replace(IDLE, failures=streak(2, held_off_until=130.0)),
        ClusterChanged(),
        {"generation": 1, "timer": 130.0},
        [SetTimer(130.0)],
    ),
    # leadership and phases
    (
        "leadership gained",
        STANDBY,
        LeadershipGained(),
        {"leading": True, "in_sync": None, "tip_due": 0.0, "requested": True},
        [FORGET, ForgetReports(), WAKE],
    ),
    ("leadership lost", RUNNING, LeadershipLost(), {"leading": False}, [CancelReconciliation()]),
    (
        "a leader reconciles, and that serves every timer",
        replace(IDLE, requested=True, timer=105.0),
        Woken(),
        {"phase": LoopPhase.RECONCILING, "requested": False, "timer": math.inf},
        [SetTimer(math.inf)],
    ),
    (
        "a standby prefetches",
        replace(STANDBY, requested=True),
        Woken(),
        {"phase": LoopPhase.PREFETCHING, "requested": False},
        [SetTimer(math.inf)],
    ),
    (
        "a stopped loop ends",
        replace(IDLE, requested=True, stopping=True),
        Woken(),
        {"phase": LoopPhase.STOPPED, "requested": False},
        [SetTimer(math.inf)],
    ),
    ("the end", RUNNING, ReconciliationEnded(), {"phase": LoopPhase.WAITING}, []),
    (
        "the end sets the timers again that its beginning replaced",
        replace(RUNNING, tip_due=107.0, skipped=SkippedRetry(1, 105.0)),
        ReconciliationEnded(),
        {"phase": LoopPhase.WAITING, "timer": 105.0},
        [SetTimer(105.0)],
    ),
    (
        "a time that is past sets no timer",
        replace(RUNNING, tip_due=0.0, skipped=SkippedRetry(1, 99.0)),
        ReconciliationEnded(),
        {"phase": LoopPhase.WAITING},
        [],
    ),
    (
        "the end of a prefetch sets no timer",
        replace(STANDBY, phase=LoopPhase.PREFETCHING, tip_due=107.0),
        ReconciliationEnded(),
        {"phase": LoopPhase.WAITING},
        [],
    ),
    # Git
    ("a look serves all", replace(RUNNING, tip_due=0.0), TipRequested(), {"tip_due": math.inf}, []),
    ("Git failed", RUNNING, GitFailed(), {"git_failing": True}, []),
    ("Git answers", replace(RUNNING, git_failing=True), TipReceived(A), {"git_failing": False}, []),
    (
        "the expected commit is the tip",
        replace(RUNNING, expected=ExpectedPush(A, 99.0)),
        TipReceived(A),
        {"expected": None},
        [],
    ),
    (
        "the expected commit is not visible yet",
        replace(RUNNING, expected=ExpectedPush(B, 98.0)),
        TipReceived(A),
        {"tip_due": 102.0, "timer": 102.0},
        [SetTimer(102.0)],
    ),
    (
        "looks for an expected commit are at least half a second apart",
        replace(RUNNING, expected=ExpectedPush(B, 100.0)),
        TipReceived(A),
        {"tip_due": 100.5, "timer": 100.5},
        [SetTimer(100.5)],
    ),
    (
        "a commit that was never shown is no longer expected",
        replace(RUNNING, expected=ExpectedPush(B, 70.0)),
        TipReceived(A),
        {"expected": None},
        [],
    ),
    (
        "a standby expects nothing",
        replace(STANDBY, phase=LoopPhase.PREFETCHING, expected=ExpectedPush(B, 98.0)),
        TipReceived(A),
        {},
        [],
    ),
    # outcomes
    (
        "a plan is made",
        replace(RUNNING, skipped=RETRYING),
        Replanned(),
        {"in_sync": None, "skipped": replace(RETRYING, due=math.inf)},
        [],
    ),
    (
        "another revision is tried at once",
        replace(RUNNING, skipped=RETRYING),
        RevisionSelected(),
        {"skipped": replace(RETRYING, attempts=0, not_before=0.0)},
        [],
    ),
    ("settled", replace(RUNNING, in_sync=None), Settled(B, 3), {"in_sync": InSync(B, 3)}, []),
    ("in sync", replace(RUNNING, in_sync=None), applied(0), SETTLED, []),
    (
        "after writes the cluster is compared once more",
        replace(RUNNING, in_sync=None),
        applied(2),
        {**COMPARED, "generation": 1, "timer": 100.5},
        [SetTimer(100.5)],
    ),
    (
        "what waits for another agent is tried soon",
        RUNNING,
        applied(0, WAITS),
        {**SETTLED, "skipped": SkippedRetry(0, 105.0)},
        [],
    ),
    ("what no time ends is not tried", RUNNING, applied(0, OFF), SETTLED, []),
    (
        "a refused object is tried again, once without back-off",
        RUNNING,
        applied(0, DENIED),
        {**SETTLED, "skipped": SkippedRetry(1, 105.0)},
        [],
    ),
    (
        "then with back-off, and not before",
        replace(RUNNING, skipped=SkippedRetry(1)),
        applied(0, DENIED),
        {**SETTLED, "skipped": RETRYING},
        [],
    ),
    (
        "what was not sent leaves the back-off as it is",
        UNTIL_RETRY,
        applied(0, DENIED),
        {**SETTLED, "skipped": RETRYING},
        [],
    ),
    (
        "another refused object counts as an attempt",
        UNTIL_RETRY,
        applied(0, DENIED, DENIED_TOO),
        {**SETTLED, "skipped": SkippedRetry(3, 120.0, 120.0, {KEY: DENIED, OTHER: DENIED_TOO})},
        [],
    ),
    (
        "an object that was applied ends the back-off",
        replace(UNTIL_RETRY, skipped=replace(RETRYING, due=math.inf, not_before=99.0)),
        applied(0),
        {**SETTLED, "skipped": SkippedRetry()},
        [],
    ),
    (
        "contested drift is corrected when its delay ends",
        loop_state.step(
            loop_state.step(RUNNING, DriftReverted(KEY), NOW).state, DriftReverted(KEY), NOW
        ).state,
        applied(0, CONTESTED),
        {**SETTLED, "skipped": SkippedRetry(0, 105.0)},
        [],
    ),
    (
        "a prefetch settles a standby",
        replace(STANDBY, in_sync=None, failures=streak(2, AWAY)),
        Prefetched(B, 4),
        {"in_sync": InSync(B, 4), "failures": FailureStreak()},
        [],
    ),
    (
        "a prefetch settles nothing for a new leader",
        RUNNING,
        Prefetched(B, 4),
        {"in_sync": None},
        [],
    ),
    (
        "success ends the failures",
        replace(RUNNING, failures=streak(3, AWAY, unreachable_at=90.0, held_off_until=130.0)),
        Succeeded(),
        {"failures": FailureStreak(unreachable_at=90.0)},
        [],
    ),
    (
        "but not those of Git, while it gives no answer",
        replace(RUNNING, git_failing=True, failures=streak(3, GIT_AWAY, held_off_until=130.0)),
        Succeeded(),
        {"failures": streak(3, GIT_AWAY)},
        [],
    ),
    # failures
    (
        "an API server that gives no answer",
        RUNNING,
        failed(AWAY),
        {"timer": 105.0, "failures": streak(1, AWAY, unreachable_at=100.0)},
        [SetTimer(105.0), published(AWAY, 5.0), FORGET],
    ),
    (
        "again: the same message is published once, and changes wait for the back-off",
        replace(RUNNING, failures=streak(1, AWAY, unreachable_at=95.0)),
        failed(AWAY),
        {
            "timer": 110.0,
            "failures": streak(2, AWAY, unreachable_at=100.0, held_off_until=110.0),
        },
        [SetTimer(110.0), FORGET],
    ),
    (
        "it is tried at least each 12 seconds",
        replace(RUNNING, failures=streak(9, AWAY, unreachable_at=95.0)),
        failed(AWAY),
        {
            "timer": 112.0,
            "failures": streak(10, AWAY, unreachable_at=100.0, held_off_until=112.0),
        },
        [SetTimer(112.0), FORGET],
    ),
    (
        "a refusal is not retried",
        RUNNING,
        failed(REFUSED),
        {"failures": streak(1, REFUSED)},
        [published(REFUSED, None), FORGET],
    ),
    (
        "but soon after an outage it is",
        replace(RUNNING, failures=streak(1, AWAY, unreachable_at=60.0)),
        failed(REFUSED),
        {
            "timer": 110.0,
            "failures": streak(2, REFUSED, unreachable_at=60.0, held_off_until=110.0),
        },
        [SetTimer(110.0), published(REFUSED, 10.0), FORGET],
    ),
    (
        "a refusal again and again holds off changes for up to 300 seconds",
        replace(RUNNING, failures=streak(9, REFUSED)),
        failed(REFUSED),
        {"failures": streak(10, REFUSED, held_off_until=400.0)},
        [FORGET],
    ),
    (
        "a Git server that is away is options again",
        replace(RUNNING, git_failing=True),
        failed(GIT_AWAY),
        {"timer": 105.0, "tip_due": 105.0, "failures": streak(1, GIT_AWAY)},
        [SetTimer(105.0), published(GIT_AWAY, 5.0), FORGET],
    ),
    (
        "a rewound branch waits for a person",
        RUNNING,
        failed(REWOUND),
        {"failures": streak(1, REWOUND)},
        [published(REWOUND, None), FORGET],
    ),
]


@pytest.mark.parametrize(
    ("state", "input", "fields", "effects"),
    [pytest.param(*row[1:], id=row[0]) for row in ROWS],
)
def test_each_transition(
    state: LoopState, input: Input, fields: dict[str, Any], effects: list[LoopEffect]
) -> None:
    transition = loop_state.step(state, input, NOW)
    assert transition.state == replace(state, **fields)
    assert list(transition.effects) == effects


def test_every_input_is_in_the_table() -> None:
    used = {type(row[2]) for row in ROWS} | {DriftReverted}
    assert used == set(loop_inputs.Input.__args__)


INPUTS = st.lists(
    st.sampled_from([row[2] for row in ROWS if not isinstance(row[2], StopRequested)]), max_size=30
)


@given(INPUTS, st.floats(0.0, 60.0))
def test_a_request_is_always_followed_by_a_wake_up(inputs: list[Input], pause: float) -> None:
    """For any events: a request is served by the next reconciliation, and a state in which none is
    requested has a timer wherever a retry is due.
    """
    state, now = NEW, NOW
    woken = True
    for input in inputs:
        if isinstance(input, Woken) and state.busy:
            continue
        transition = loop_state.step(state, input, now)
        state = transition.state
        woken = (woken and not isinstance(input, Woken)) or Wake() in transition.effects
        assert woken == state.requested
        timers = [effect.at for effect in transition.effects if isinstance(effect, SetTimer)]
        assert not timers or timers[-1] == state.timer
        now = Moment(now.loop + pause, now.unix + pause)
    ended = loop_state.step(state, ReconciliationEnded(), now).state
    due = [at for at in (state.skipped.due, state.tip_due) if now.loop < at < math.inf]
    if state.phase is LoopPhase.RECONCILING and state.leading and due:
        assert ended.timer <= min(due)


@pytest.mark.parametrize(
    ("state", "at", "settled"),
    [
        (IDLE, 100.0, True),
        (replace(IDLE, generation=1), 100.0, False),
        (replace(IDLE, in_sync=None), 100.0, False),
        (replace(IDLE, in_sync=InSync(B, 0)), 100.0, False),
        (replace(IDLE, skipped=SkippedRetry(1, 105.0)), 104.0, True),
        (replace(IDLE, skipped=SkippedRetry(1, 105.0)), 105.0, False),
    ],
)
def test_settled_until_the_cluster_changes_or_a_retry_is_due(
    state: LoopState, at: float, settled: bool
) -> None:
    assert loop_state.is_settled(state, A, at) is settled


@pytest.mark.parametrize(
    ("unix", "due"), [(999.0, True), (1000.0, False), (1599.0, False), (1600.0, True)]
)
def test_a_comparison_is_due_after_a_time_and_when_the_clock_was_set_back(
    unix: float, due: bool
) -> None:
    state = replace(IDLE, compared_unix=1000.0, compare_due_unix=1600.0)
    assert loop_state.comparison_is_due(state, unix) is due


def test_deferred_objects_are_sent_again_when_their_delay_ends() -> None:
    state = replace(IDLE, skipped=RETRYING)
    assert loop_state.deferred(state, 109.9) == {KEY: DENIED}
    assert loop_state.deferred(state, 110.0) == {}


def test_a_fetch_is_due_at_its_time_and_when_the_timer_is_a_little_early() -> None:
    state = replace(IDLE, tip_due=110.0)
    assert [loop_state.tip_is_due(state, at) for at in (109.9, 109.995, 110.0)] == [
        False,
        True,
        True,
    ]
