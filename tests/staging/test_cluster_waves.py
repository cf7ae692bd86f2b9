"""Whether a commit may go on to a cluster: a table, and properties of random reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import (
    ClusterOrder,
    ClusterReport,
    ClusterState,
    ProvedCommit,
)
from gitops_ds.core.values import replace
from gitops_ds.rollouts.waves import cluster_waves, wave_order
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports

NOW = 1_767_225_600.0
OLD, NEW = CommitId("1" * 40), CommitId("2" * 40)


def report(
    state: ClusterState = ClusterState.PROVED,
    *,
    cluster: str = "staging",
    proved: tuple[tuple[CommitId, float], ...] = ((OLD, NOW - 7200), (NEW, NOW - 600)),
    applied: CommitId = NEW,
    newest: CommitId = NEW,
    message: str = "",
    at: float = NOW,
) -> ClusterReport:
    return ClusterReport(
        cluster,
        state,
        at,
        message=message,
        newest=newest,
        applied=applied,
        proved=tuple(ProvedCommit(*one) for one in proved),
        agents=5,
        well=3,
    )


def known(*reports: ClusterReport) -> ClusterReports:
    return ClusterReports({one.cluster: one for one in reports}, {})


def order(*after: str, soak: float = 0.0) -> ClusterOrder:
    return ClusterOrder(after or ("staging",), soak, wave=2, waves=2)


ROLLING = report(ClusterState.PROGRESSING, proved=((OLD, NOW - 7200),))


@pytest.mark.parametrize(
    ("soak", "reports", "text"),
    [
        (0.0, known(report()), ""),
        (600.0, known(report()), ""),
        (601.0, known(report()), "soak of 601s until 2026-01-01T00:00:01Z"),
        (3600.0, known(report()), "soak of 1h until 2026-01-01T00:50:00Z"),
        (
            3600.0,
            known(report(at=NOW - 590)),
            "soak of 1h until 2026-01-01T00:50:00Z",
        ),
        # The report, not the time here, shows that the cluster stayed well.
        (
            600.0,
            known(report(at=NOW - 590)),
            "soak of 10m until 2026-01-01T00:00:00Z",
        ),
        (
            0.0,
            known(report(ClusterState.FAILED, message="halted in stage canary")),
            "it failed: halted in stage canary",
        ),
        (0.0, known(ROLLING), "rolling out, 3 of 5 agents well"),
        (
            0.0,
            known(replace(ROLLING, message="stage canary")),
            "stage canary, 3 of 5 agents well",
        ),
        (
            0.0,
            known(report(proved=(), applied=OLD, message="commit 222222222222 is on hold")),
            "commit 222222222222 is on hold",
        ),
        (
            0.0,
            known(report(proved=((OLD, NOW),), applied=OLD, newest=OLD, at=NOW - 10_800)),
            "it has commit 111111111111, not 222222222222 yet; its last report is 3.0 h old",
        ),
        (
            0.0,
            known(report(proved=(), applied=OLD, message="suspended", at=NOW - 901)),
            "suspended; its last report is 15 min old",
        ),
        (
            0.0,
            known(report(proved=(), applied=OLD, message="suspended", at=NOW - 900)),
            "suspended",
        ),
        (0.0, known(), "it has published no report"),
        (
            0.0,
            ClusterReports({}, {"staging": "its report is not signed by a trusted key"}),
            "its report is not signed by a trusted key",
        ),
    ],
)
def test_a_commit_continues_when_it_is_proved_and_has_soaked(
    soak: float, reports: ClusterReports, text: str
) -> None:
    hold = cluster_waves.hold(order(soak=soak), reports, NEW, NOW)
    assert (hold.text if hold else "") == (f"waits for cluster staging: {text}" if text else "")


def test_a_failed_cluster_is_named_first() -> None:
    failed = report(ClusterState.FAILED, cluster="eu-2", message="halted")
    hold = cluster_waves.hold(order("staging", "eu-1", "eu-2"), known(ROLLING, failed), NEW, NOW)
    assert hold is not None
    assert (hold.cluster, hold.failed) == ("eu-2", True)
    hold = cluster_waves.hold(order("staging", "eu-1"), known(ROLLING), NEW, NOW)
    assert hold is not None
    assert hold.cluster == "staging"


def test_the_newest_commit_that_passed_everywhere_is_first() -> None:
    one, two, three = (CommitId(digit * 40) for digit in "345")
    staging = report(proved=((one, NOW - 300), (two, NOW - 200), (three, NOW - 10)))
    other = report(cluster="eu-1", proved=((one, NOW - 100), (two, NOW - 90)))
    both = known(staging, other)
    assert cluster_waves.passed(order("staging", "eu-1"), both) == (two, one)
    assert cluster_waves.passed(order("staging", "eu-1", soak=95.0), both) == (one,)
    assert cluster_waves.passed(order("staging", "eu-2"), both) == ()


STATES = st.sampled_from(tuple(ClusterState))
COMMITS = st.sampled_from([CommitId(digit * 40) for digit in "0123"])


@st.composite
def any_report(draw: st.DrawFn, cluster: str) -> ClusterReport:
    proved = draw(st.dictionaries(COMMITS, st.floats(0, 100), max_size=3))
    return report(
        draw(STATES),
        cluster=cluster,
        proved=tuple((one, NOW - age) for one, age in proved.items()),
        applied=draw(COMMITS),
        newest=draw(COMMITS),
        at=NOW - draw(st.floats(0, 50)),
    )


@given(any_report("a"), any_report("b"), COMMITS, st.floats(0, 100), st.floats(0, 1e6))
def test_a_commit_continues_only_when_each_earlier_cluster_proved_it_for_its_soak(
    one: ClusterReport, other: ClusterReport, commit: CommitId, soak: float, later: float
) -> None:
    both, place = known(one, other), order("a", "b", soak=soak)
    goes_on = cluster_waves.hold(place, both, commit, NOW) is None
    assert goes_on == all(
        found.state is not ClusterState.FAILED
        and any(p.commit == commit and p.at + soak <= found.at for p in found.proved)
        for found in (one, other)
    )
    # Time alone lets nothing go on, nor does a failure or a missing report.
    assert goes_on == (cluster_waves.hold(place, both, commit, NOW + later) is None)
    assert goes_on == (commit in cluster_waves.passed(place, both))
    assert cluster_waves.hold(place, known(one), commit, NOW) is not None


@given(any_report("a"))
def test_a_report_is_the_same_after_its_file(found: ClusterReport) -> None:
    assert cluster_report.decode(cluster_report.encode(found)) == found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"cluster": "a", "state": "Proven", "at": 1}',
        b'{"cluster": "a", "state": "Proved", "at": 1, "version": 2}',
        b'{"cluster": "a", "state": "Proved", "at": 1, "proved": 3}',
        b'{"cluster": "a", "state": "Proved", "at": 1, "message": "%s"}' % (b"x" * 70_000),
    ],
)
def test_an_invalid_report_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        cluster_report.decode(data)


def test_the_text_of_an_order() -> None:
    orders = {
        "staging": ClusterOrder(wave=1, waves=2),
        "eu-1": ClusterOrder(("staging",), 3600.0, wave=2, waves=2),
        "us-1": ClusterOrder(("staging",), wave=2, waves=2),
    }
    assert wave_order.words(orders["eu-1"]) == "wave 2 of 2, after staging (soak 1h)"
    assert wave_order.words(orders["staging"]) == "wave 1 of 2"
    assert wave_order.words(ClusterOrder()) == ""
    expected = "commits reach the clusters in 2 waves: staging; eu-1, us-1"
    assert wave_order.summary(orders) == expected
    assert wave_order.summary({"": ClusterOrder()}) == ""


def test_the_place_of_a_cluster_as_json() -> None:
    place = ClusterOrder(("staging",), 3600.0, 7200.0, wave=2, waves=3)
    assert wave_order.as_json(place) == {
        "wave": 2,
        "waves": 3,
        "after": ["staging"],
        "soak": 3600.0,
        "within": 7200.0,
    }
