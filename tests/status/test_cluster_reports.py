"""The report of a cluster: when a commit is proved, and when a report is published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.deployer_state import DeployerState, Generation, KnownDrift
from gitops_ds.core.health import Health
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import (
    KEPT,
    NO_ORDER,
    ClusterOrder,
    ClusterReport,
    ClusterState,
    ProvedCommit,
)
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.waves import cluster_waves
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports
from gitops_ds.status import cluster_reports
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow, ReportInput
from tests.notifications.test_commit_progress import (
    BROKEN,
    ILL,
    ONE,
    PARKED,
    ROLLING,
    THREE,
    TWO,
    WELL,
    A,
    B,
    agent,
)

STATUS = SourceStatus("fleet", condition=Condition.SYNCED, message="m", newest=TWO, applied=TWO)
STATE = DeployerState(
    last_good=TWO,
    last_attempted=TWO,
    generations={A: Generation(1, TWO), B: Generation(1, ONE)},
)


def inputs(
    *agents: Agent, status: SourceStatus = STATUS, state: DeployerState = STATE
) -> ReportInput:
    shown = agents or (agent(A, TWO, WELL), agent(B, ONE, WELL))
    return ReportInput("staging", status, state, {A, B}, shown)


def state_of(source: ReportInput) -> ClusterState:
    return cluster_reports.report(source, None, 1000.0).state


def test_an_applied_commit_with_every_agent_healthy_is_proved() -> None:
    result = cluster_reports.report(inputs(), None, 1000.0)
    assert result.state is ClusterState.PROVED
    assert result.proved == (ProvedCommit(TWO, 1000.0),)
    assert (result.agents, result.well, result.since) == (2, 2, 1000.0)
    # B has carried commit ONE since; it does not change with TWO.
    assert result.message == f"commit {TWO[:12]} is proved"
    again = cluster_reports.report(inputs(), result, 2000.0)
    assert (again.proved, again.since, again.at) == (result.proved, 1000.0, 2000.0)


@pytest.mark.parametrize(
    ("health", "state"),
    [
        (WELL, ClusterState.PROVED),
        (ILL, ClusterState.PROVED),
        (ROLLING, ClusterState.PROGRESSING),
        (PARKED, ClusterState.PROGRESSING),
        (BROKEN, ClusterState.FAILED),
    ],
)
def test_an_unhealthy_agent_proves_nothing(health: Health, state: ClusterState) -> None:
    assert state_of(inputs(agent(A, TWO, health), agent(B, ONE, WELL))) is state


@pytest.mark.parametrize("health", [WELL, BROKEN])
@pytest.mark.parametrize("known", [False, True], ids=["not compared yet", "drift"])
def test_an_edit_in_the_cluster_neither_proves_nor_fails_a_commit(
    health: Health, known: bool
) -> None:
    other = agent(B, ONE, WELL)
    first = agent(A, TWO, health)
    template = {"spec": {"containers": [{"name": "a", "image": "edited"}]}}
    daemonset = replace(first.seen.daemonset, generation=2, template=template)
    first = replace(first, seen=replace(first.seen, daemonset=daemonset))
    drift = {A: KnownDrift(DriftPolicy.HOLD, 0.0, "edited")} if known else {}
    generations = {**STATE.generations, A: Generation(2 if known else 1, TWO)}
    commits = {A: {"another template": TWO}}
    state = replace(STATE, drift=drift, generations=generations, commits=commits)
    before = cluster_reports.report(inputs(), None, 1000.0)
    result = cluster_reports.report(inputs(first, other, state=state), before, 2000.0)
    assert (result.state, result.proved) == (ClusterState.PROGRESSING, before.proved)
    assert result.message == f"{A} has a template of an edit in the cluster"
    broken = inputs(first, agent(B, ONE, BROKEN), state=state)
    assert state_of(broken) is ClusterState.FAILED


def test_watches_that_are_behind_prove_nothing() -> None:
    behind = inputs(agent(A, ONE, WELL), agent(B, ONE, WELL))
    result = cluster_reports.report(behind, None, 1000.0)
    assert (result.state, result.well) == (ClusterState.PROGRESSING, 1)
    assert result.message == f"rolling out {A}"
    missing = inputs(agent(A, TWO, WELL))
    assert state_of(missing) is ClusterState.PROGRESSING
    stale = replace(agent(A, TWO, WELL), stale="the watch of pods has been silent")
    assert state_of(inputs(stale, agent(B, ONE, WELL))) is ClusterState.PROGRESSING


@pytest.mark.parametrize("condition", Condition)
def test_the_applied_commit_is_proved_under_conditions_that_keep_it_applied(
    condition: Condition,
) -> None:
    status = replace(STATUS, condition=condition, newest=THREE)
    not_current = {
        Condition.UNKNOWN,
        Condition.PROGRESSING,
        Condition.UNREACHABLE,
        Condition.FAILED,
        Condition.REFUSED,
        Condition.PARTLY_APPLIED,
        Condition.SUSPENDED,
    }
    result = cluster_reports.report(inputs(status=status), None, 1000.0)
    assert (result.state is ClusterState.PROVED) == (condition not in not_current)
    assert {one.commit for one in result.proved} <= {TWO}


def test_a_commit_that_is_applied_in_part_is_not_proved() -> None:
    for state in (
        replace(STATE, last_good=ONE),
        replace(STATE, last_attempted=THREE),
    ):
        assert state_of(inputs(state=state)) is ClusterState.PROGRESSING


def test_a_failure_ends_all_proofs_and_a_later_commit_ends_none() -> None:
    first = cluster_reports.report(inputs(), None, 1000.0)
    rolling = inputs(agent(A, TWO, ROLLING), agent(B, ONE, WELL))
    later = cluster_reports.report(rolling, first, 2000.0)
    assert later.proved == first.proved
    failed = cluster_reports.report(
        inputs(agent(A, TWO, BROKEN), agent(B, ONE, WELL)), first, 2000.0
    )
    assert failed.proved == ()
    assert BROKEN.message in failed.message
    assert cluster_reports.report(inputs(), failed, 3000.0).proved == (ProvedCommit(TWO, 3000.0),)


def test_the_last_proofs_are_kept() -> None:
    report: ClusterReport | None = None
    for number in range(2 * KEPT):
        commit = CommitId(f"{number:040x}")
        status = replace(STATUS, newest=commit, applied=commit)
        state = replace(STATE, last_good=commit, last_attempted=commit)
        report = cluster_reports.report(inputs(status=status, state=state), report, float(number))
    assert report is not None
    assert [one.at for one in report.proved] == list(range(KEPT, 2 * KEPT))


def test_a_change_is_due_at_once_counts_after_a_minute_and_nothing_else() -> None:
    first = cluster_reports.report(inputs(), None, 1000.0)
    assert cluster_reports.due(None, first, []) == 1000.0
    same = cluster_reports.report(inputs(), first, 1010.0)
    assert cluster_reports.due(first, same, []) is None
    counts = cluster_reports.report(inputs(agent(A, TWO, ILL), agent(B, ONE, WELL)), first, 1010.0)
    assert cluster_reports.due(first, replace_message(counts), []) == 1060.0
    failed = cluster_reports.report(
        inputs(agent(A, TWO, BROKEN), agent(B, ONE, WELL)), first, 1010.0
    )
    assert cluster_reports.due(first, failed, []) == 1010.0


def replace_message(report: ClusterReport) -> ClusterReport:
    """The same content for others, another message."""
    return replace(report, message="other words")


@given(st.lists(st.floats(1, 10_000), max_size=4), st.floats(0, 20_000))
def test_a_report_at_the_end_of_each_soak_lets_the_clusters_behind_continue(
    soaks: list[float], age: float
) -> None:
    first = cluster_reports.report(inputs(), None, 1000.0)
    published = cluster_reports.report(inputs(), first, 1000.0 + age)
    due = cluster_reports.due(published, published, soaks)
    waiting = [soak for soak in soaks if TWO not in published.passed(soak)]
    if not waiting:
        assert due is None
        return
    assert due is not None
    at_end = cluster_reports.report(inputs(), published, due)
    assert TWO in at_end.passed(min(waiting))
    assert cluster_reports.due(at_end, at_end, [min(waiting)]) is None


@pytest.mark.parametrize(
    "field",
    [
        {"newest": "\x1b[2J"},
        {"applied": "main~1"},
        {"proved": [{"commit": "--help", "at": 1.0}]},
        {"proved": [{"commit": f"{'a' * 40}\n", "at": 1.0}]},
        {"agents": 10**4000},
        {"well": -1},
    ],
)
def test_a_report_of_another_cluster_gives_git_full_commit_ids_only(
    field: Mapping[str, Any],
) -> None:
    report = {"cluster": "staging", "state": "Proved", "at": 1.0}
    cluster_report.decode(json.dumps(report).encode())
    with pytest.raises(ValueError, match=r"Expected|out of range"):
        cluster_report.decode(json.dumps({**report, **field}).encode())


@pytest.mark.parametrize("at", [-1e300, 1e18, 1e300])
def test_impossible_times_of_another_clusters_report_can_be_printed(at: float) -> None:
    proved = (ProvedCommit(ONE, at),)
    sent = ClusterReport("staging", ClusterState.PROGRESSING, at, since=at, proved=proved)
    read = cluster_report.decode(cluster_report.encode(sent))
    row = ClusterRow("staging", NO_ORDER, read)
    assert cluster_reports.as_json(row)["reported"] == (timestamps.text(read.at) if at > 0 else "")
    order, reports = (
        ClusterOrder(after=("staging",), soak=1e6),
        ClusterReports({"staging": read}, {}),
    )
    hold = cluster_waves.hold(order, reports, ONE, 0.0)
    assert hold is not None
    assert "soak" in hold.text


def test_the_texts_of_another_clusters_report_are_printable_and_its_proofs_few() -> None:
    bad = "https://a/\x1b]0;title\x07\u202e"
    proved = tuple(ProvedCommit(CommitId(f"{n:040x}"), 1.0) for n in range(500))
    report = ClusterReport(bad, ClusterState.PROVED, 1.0, 1, bad, bad, url=bad, proved=proved)
    read = cluster_report.decode(cluster_report.encode(report))
    for text in (read.cluster, read.condition, read.message, read.url):
        assert text.isprintable()
    assert read.proved == proved[-KEPT:]
