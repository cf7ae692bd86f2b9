"""The page of all clusters, from their reports."""

from __future__ import annotations

import pytest

from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.cluster_report import ClusterOrder, ClusterReport, ClusterState
from gitops_ds.status.cluster_reports import NO_REPORT, ClusterRow
from tests.page import fleets

COMMIT = CommitId("89c52d7634e9" + "0" * 28)
STAGING = ClusterOrder(wave=1, waves=2)
EU_1 = ClusterOrder(("staging",), 3600.0, wave=2, waves=2)


def report(url: str = "", message: str = "") -> ClusterReport:
    return ClusterReport(
        "staging",
        ClusterState.PROVED,
        1_767_225_600.0,
        message=message,
        applied=COMMIT,
        newest=COMMIT,
        since=1_767_222_000.0,
        agents=5,
        well=4,
        url=url,
    )


def drawn(*rows: ClusterRow, path: str = "clusters") -> str:
    show = fleets.story(10)
    show.ordered = list(rows)
    return fleets.html(show, path)


def test_the_clusters_are_shown_in_their_order_with_their_reports() -> None:
    staging = ClusterRow("staging", STAGING, report("https://staging.example.com/ds/"))
    html = drawn(staging, ClusterRow("eu-1", EU_1, None, NO_REPORT))
    assert '<a href="https://staging.example.com/ds/" rel="noreferrer">staging</a>' in html
    assert '<a class="commit" href="commits/' in html
    for expected in ("4/5", "2026-01-01 00:00:00 UTC", "2025-12-31 23:00:00 UTC", "Proved"):
        assert expected in html
    assert ">staging, soak 1h</td>" in html
    assert NO_REPORT in html
    assert html.index("staging.example.com") < html.index(NO_REPORT)


def test_the_pages_link_to_the_clusters_only_where_they_have_an_order() -> None:
    link = '<a href="clusters">Clusters</a>'
    assert link in drawn(ClusterRow("staging", STAGING, report()), path="")
    assert link not in drawn(path="")
    assert "No cluster of this repository waits for another one." in drawn()


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "//other.example.com"])
def test_a_report_brings_no_link_of_another_kind_and_no_markup(url: str) -> None:
    html = drawn(ClusterRow("staging", STAGING, report(url, "<script>alert(1)</script>")))
    assert url not in html
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
