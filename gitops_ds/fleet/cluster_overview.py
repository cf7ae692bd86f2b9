"""All clusters of a repository in their order, each with its last report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gitops_ds.apimachinery import timestamps
from gitops_ds.model.rollouts.cluster_report import NO_ORDER, ClusterOrder, ClusterReport
from gitops_ds.plan.rollouts.cluster_waves import ClusterReports

UNKNOWN = "Unknown"
NO_REPORT = "no report was published"


class ClusterRow(msgspec.Struct, frozen=True):
    """One cluster: its place in the order, and its report; None with the reason in `problem`.

    `verified`: the report is signed by a trusted key. `unverified`: the signature was not verified,
    although the reports of the repository are signed.
    """

    name: str
    order: ClusterOrder
    report: ClusterReport | None = None
    problem: str = ""
    verified: bool = False
    unverified: bool = False

    @property
    def state(self) -> str:
        """The state in its report, else Unknown."""
        return self.report.state.value if self.report else UNKNOWN

    @property
    def message(self) -> str:
        """The message of its report, or why it is missing."""
        return self.report.message if self.report else self.problem

    def agents(self) -> str:
        """`3/5`: the healthy agents of all; empty without a report."""
        return f"{self.report.well}/{self.report.agents}" if self.report else ""


def rows(
    names: Iterable[str], orders: Mapping[str, ClusterOrder], reports: ClusterReports
) -> tuple[ClusterRow, ...]:
    """The clusters by wave and name."""
    all_rows = [
        ClusterRow(
            name,
            orders.get(name, NO_ORDER),
            reports.reports.get(name),
            reports.problems.get(name, NO_REPORT),
        )
        for name in names
    ]
    return tuple(sorted(all_rows, key=lambda one: (one.order.wave, one.name)))


def as_json(row: ClusterRow) -> dict[str, Any]:
    """One item of a ClusterReportList (docs/reference/json.md)."""
    report = row.report
    return {
        "cluster": row.name,
        "wave": row.order.wave,
        "after": list(row.order.after),
        "soak": row.order.soak,
        "within": row.order.within,
        "state": row.state,
        "verified": row.verified,
        "condition": report.condition if report else "",
        "message": row.message,
        "newestCommit": report.newest if report else "",
        "appliedCommit": report.applied if report else "",
        "since": _time(report.since) if report else "",
        "reported": _time(report.at) if report else "",
        "proved": [
            {"commit": one.commit, "at": _time(one.at)} for one in (report.proved if report else ())
        ],
        "agents": report.agents if report else 0,
        "well": report.well if report else 0,
        "url": report.url if report else "",
    }


def _time(at: float) -> str:
    return timestamps.text(at) if at else ""
