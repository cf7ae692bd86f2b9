"""The reports of clusters, read from Git, and verified if signatures are required; for the page
once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from gitops_ds import errors
from gitops_ds.fleet import cluster_reports
from gitops_ds.fleet.cluster_reports import ClusterRow
from gitops_ds.git.cluster_refs import ReportRef
from gitops_ds.git.commit_writer import Signature
from gitops_ds.git.revision import Head, RevisionSpec
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.commits import ReportsRead
from gitops_ds.model.objects import CommitId
from gitops_ds.model.rollouts import cluster_report
from gitops_ds.model.rollouts.cluster_report import ClusterOrder, ClusterReport
from gitops_ds.model.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.model.values import replace
from gitops_ds.plan.rollouts.cluster_waves import ClusterReports
from gitops_ds.service.git import git_auth
from gitops_ds.settings.repository import RepositorySettings


class ReportRepository(Protocol):
    """The source of reports (`gitops_ds.git.repository.Repository`)."""

    async def cluster_reports(self, path: str, clusters: Sequence[str]) -> tuple[ReportRef, ...]:
        """The reports of these clusters on the server."""
        ...

    async def publish_report(
        self, path: str, report: ReportRef, expect: CommitId | None, by: Signature
    ) -> CommitId:
        """Replaces the report of a cluster; PushRejected if another one was published."""
        ...

    async def verify_kept(
        self, revision: RevisionSpec, commit: CommitId, trust: Trust
    ) -> Verified | Unverified:
        """Whether a commit has a trusted signature."""
        ...


class ReadReport(msgspec.Struct, frozen=True):
    """A report with its commit; `report` is None for an invalid one, and `problem` the reason."""

    ref: ReportRef
    report: ClusterReport | None
    problem: str = ""


async def read(
    repository: ReportRepository, path: str, names: Iterable[str], trust: Trust
) -> tuple[ReadReport, ...]:
    """The published reports of these clusters. Raises SourceError."""
    refs = await repository.cluster_reports(path, tuple(names))
    return tuple([await _read(repository, path, one, trust) for one in refs])


def of(reports: Iterable[ReadReport]) -> ClusterReports:
    """The valid reports, and the problems of the others."""
    rows = tuple(reports)
    return ClusterReports(
        {one.ref.cluster: one.report for one in rows if one.report is not None},
        {one.ref.cluster: one.problem for one in rows if one.report is None},
    )


async def _read(
    repository: ReportRepository, path: str, ref: ReportRef, trust: Trust
) -> ReadReport:
    if trust.mode is not Mode.NONE:
        # A report is a single commit without parents and tags.
        alone = replace(trust, mode=Mode.HEAD)
        verification = await repository.verify_kept(Head(), ref.commit, alone)
        if isinstance(verification, Unverified):
            return ReadReport(ref, None, "its report is not signed by a trusted key")
    try:
        report = cluster_report.decode(ref.data)
    except ValueError as error:
        return ReadReport(ref, None, f"its report is not readable: {error}")
    if report.cluster != ref.cluster:
        return ReadReport(ref, None, f"its report is that of cluster {report.cluster}")
    # A signature is valid in every ref: the report of another folder proves nothing about this one.
    if trust.mode is not Mode.NONE and report.path != path:
        return ReadReport(ref, None, "its signed report is that of another folder")
    return ReadReport(ref, report)


EVERY = 60.0  # seconds between two reads
SOON = 5.0  # seconds between two checks for an order, which need no request


class WatchContext(msgspec.Struct, frozen=True):
    """The dependencies of a watch; `orders` returns the order of the applied commit, empty without
    one. `clock` returns seconds since 1970.
    """

    repository: ReportRepository
    settings: RepositorySettings
    orders: Callable[[], Mapping[str, ClusterOrder]]
    emit: Emit
    clock: Callable[[], float]


class ClusterWatch:
    """The clusters of one repository, kept up to date while `run` runs."""

    def __init__(self, context: WatchContext) -> None:
        self._context = context
        self.rows: Sequence[ClusterRow] = ()

    async def run(self) -> None:
        """Reads until it is cancelled. While Git is unreachable, the last reports are kept."""
        while True:
            with contextlib.suppress(errors.GitopsError):
                rows = await self._read()
                if rows != self.rows:
                    self.rows = rows
                    self._context.emit(ReportsRead(self._context.clock()))
            await asyncio.sleep(EVERY if self._context.orders() else SOON)

    async def _read(self) -> Sequence[ClusterRow]:
        context, orders = self._context, self._context.orders()
        if not orders:
            return ()
        trust = git_auth.trust_of(context.settings)
        reports = await read(context.repository, context.settings.path, tuple(orders), trust)
        return cluster_reports.rows(orders, orders, of(reports))
