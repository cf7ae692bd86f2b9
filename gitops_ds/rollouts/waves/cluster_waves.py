"""Whether a commit may continue to a cluster, by the reports of the clusters before. Pure.

A commit continues when each cluster before has proved it, through its soak, and has not failed. An
invalid, missing or late report never lets a commit continue.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.core import duration
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.rollouts.cluster_report import ClusterOrder, ClusterReport, ClusterState
from gitops_ds.kube.apimachinery import timestamps

STALE = 900.0  # seconds after which a wait names the age of a report


class ClusterReports(msgspec.Struct, frozen=True):
    """The reports by cluster, and why others are invalid (`problems`, by cluster)."""

    reports: Mapping[str, ClusterReport]
    problems: Mapping[str, str]


class WaveHold(msgspec.Struct, frozen=True):
    """Why a commit waits: the cluster that it waits for, the reason, and when the soak ends, in
    seconds since 1970 (None if unknown). `failed`: that cluster has failed.
    """

    cluster: str
    reason: str
    until: float | None = None
    failed: bool = False

    @property
    def text(self) -> str:
        """The reason, and the time (UTC) of its end."""
        ends = "" if self.until is None else f" until {timestamps.text(self.until)}"
        return f"waits for cluster {self.cluster}: {self.reason}{ends}"


def hold(
    order: ClusterOrder, reports: ClusterReports, commit: CommitId, now: float
) -> WaveHold | None:
    """Why the commit waits, for a failed cluster, else for the first one of `after` that has not
    passed it; None if it may continue.
    """
    holds = [
        wave_hold
        for name in order.after
        if (wave_hold := _hold(name, order.soak, reports, commit, now)) is not None
    ]
    return next((other for other in holds if other.failed), holds[0] if holds else None)


def passed(order: ClusterOrder, reports: ClusterReports) -> tuple[CommitId, ...]:
    """The commits that went through every cluster before, newest first by the last proof."""
    times: dict[CommitId, float] = {}
    sets = []
    for name in order.after:
        report = reports.reports.get(name)
        if report is None:
            return ()
        sets.append(report.passed(order.soak))
        for proved in report.proved:
            times[proved.commit] = max(proved.at, times.get(proved.commit, 0.0))
    commits = frozenset.intersection(*sets) if sets else frozenset[CommitId]()
    return tuple(sorted(commits, key=lambda commit: (-times[commit], commit)))


def _hold(
    name: str, soak: float, reports: ClusterReports, commit: CommitId, now: float
) -> WaveHold | None:
    report = reports.reports.get(name)
    if report is None:
        return WaveHold(name, reports.problems.get(name, "it has published no report"))
    if commit in report.passed(soak):
        return None
    age = now - report.at
    late = f"; its last report is {duration.words(age)} old" if age > STALE else ""
    if report.state is ClusterState.FAILED:
        return WaveHold(name, f"it failed: {report.message}{late}", failed=True)
    proof = next(
        (proved_commit for proved_commit in report.proved if proved_commit.commit == commit), None
    )
    if proof is not None:
        return WaveHold(name, f"soak of {duration.text(soak)}{late}", proof.at + soak)
    return WaveHold(name, f"{_progress(report, commit)}{late}")


def _progress(report: ClusterReport, commit: CommitId) -> str:
    """The progress of the cluster with the commit."""
    if report.applied == commit:
        return f"{report.message or 'rolling out'}, {report.well} of {report.agents} agents well"
    if report.newest == commit:
        return report.message or f"commit {short(commit)} is not applied there yet"
    return f"it has commit {short(report.newest) or 'none'}, not {short(commit)} yet"
