"""The reports of clusters in Git, while a cluster of the repository waits for another: that of this
cluster is published, those of the others are read, for the page once a minute.

`status.cluster_reports` decides the content of a report and when it is due. A failed push is
repeated with back-off; later clusters wait meanwhile. A report that is read is verified if
signatures are required.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.events.commits import ReportFailed, ReportsRead
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rate_limits import Backoff, TokenBucket
from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import ClusterOrder, ClusterReport
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.core.values import replace
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports
from gitops_ds.service.git import git_auth
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.source.git.cluster_refs import ReportRef
from gitops_ds.source.git.commit_writer import Signature
from gitops_ds.source.git.revision import Head, RevisionSpec
from gitops_ds.status import cluster_reports
from gitops_ds.status.cluster_reports import ClusterRow, ReportInput

READ_EVERY = 60.0  # seconds between two reads
CHECK_EVERY = 5.0  # seconds between two checks for an order, which need no request
BACKOFF = Backoff(5.0, 300.0, jitter=0.1)
BURST, PUSH_EVERY = 5, 10.0  # pushes at once; then one per that many seconds
GATHER = 0.5  # seconds in which changes are combined
_NO_PUSH = (
    "other clusters wait for this one, and the service may not push: set repository.push, with "
    "credentials that may write"
)


class ReportRepository(Protocol):
    """The source of reports (`gitops_ds.source.git.repository.Repository`)."""

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
    return tuple([await _read(repository, path, ref, trust) for ref in refs])


def of(reports: Iterable[ReadReport]) -> ClusterReports:
    """The valid reports, and the problems of the others."""
    rows = tuple(reports)
    return ClusterReports(
        {row.ref.cluster: row.report for row in rows if row.report is not None},
        {row.ref.cluster: row.problem for row in rows if row.report is None},
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


class ClusterWatch:
    """The clusters of one repository, kept up to date while `run` runs."""

    def __init__(
        self,
        context: RepositoryContext[ReportRepository],
        orders: Callable[[], Mapping[str, ClusterOrder]],
    ) -> None:
        """`orders` returns the order of the applied commit, empty without one."""
        self._context, self._orders = context, orders
        self.rows: Sequence[ClusterRow] = ()

    async def run(self) -> None:
        """Reads until it is cancelled. While Git is unreachable, the last reports are kept."""
        while True:
            with contextlib.suppress(errors.GitopsError):
                rows = await self._read()
                if rows != self.rows:
                    self.rows = rows
                    self._context.emit(ReportsRead(self._context.clock()))
            await asyncio.sleep(READ_EVERY if self._orders() else CHECK_EVERY)

    async def _read(self) -> Sequence[ClusterRow]:
        context, orders = self._context, self._orders()
        if not orders:
            return ()
        trust = git_auth.trust_of(context.settings)
        reports = await read(context.repository, context.settings.path, tuple(orders), trust)
        return cluster_reports.rows(orders, orders, of(reports))


class OwnPlace(msgspec.Struct, frozen=True):
    """The place of this cluster in the order, and the inputs of its report."""

    order: ClusterOrder
    inputs: ReportInput


class ReportPublisher:
    """Publishes the reports of one repository while `run` runs."""

    def __init__(
        self,
        context: RepositoryContext[ReportRepository],
        place: Callable[[], OwnPlace | None],
    ) -> None:
        """`place` returns None before the first reconciliation and while another replica leads."""
        self._context, self._place = context, place
        self._wake = asyncio.Event()
        self._bucket = TokenBucket(BURST, 1 / PUSH_EVERY)
        self._failure = ""
        self._failures = 0
        self._warned = False
        self._blocked_for = 0.0
        self._forget()

    def _forget(self) -> None:
        """Reads the own report again: another replica may have replaced it."""
        self._read = False
        self._commit: CommitId | None = None
        self._published: ClusterReport | None = None
        self._current: ClusterReport | None = None

    def wake(self) -> None:
        """Announces a change of the status of the repository or of an agent."""
        self._wake.set()

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        while True:
            self._wake.clear()
            wait = await self._attempt()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            await asyncio.sleep(max(GATHER, self._blocked_for))

    async def _attempt(self) -> float | None:
        """One attempt; returns the seconds until the next one, None if only a change causes one. A
        failure is published once for the same message.
        """
        try:
            wait = await self._publish()
        except errors.GitopsError as error:
            self._read = False
            if isinstance(error, errors.PushRejected):
                return PUSH_EVERY  # another replica published
            if str(error) != self._failure:
                self._context.emit(ReportFailed(self._context.clock(), str(error)))
            self._failure, self._failures = str(error), self._failures + 1
            await asyncio.sleep(BACKOFF.delay(self._failures, self._context.chance()))
            return 0.0
        self._failure, self._failures = "", 0
        return wait

    async def _publish(self) -> float | None:
        context, place = self._context, self._place()
        if place is None or not place.order.exists:
            self._forget()
            return None
        if not context.settings.push:
            if place.order.behind and not self._warned:
                self._warned = True
                context.emit(ReportFailed(context.clock(), _NO_PUSH))
            return None
        if not self._read:
            await self._read_own(place.inputs.cluster)
        now = context.clock()
        current = cluster_reports.report(place.inputs, self._current, now)
        self._current = current
        soaks = [cluster.soak for cluster in place.order.behind]
        due = cluster_reports.due(self._published, current, soaks)
        if due is None or due > now:
            return None if due is None else due - now
        data = cluster_report.encode(current)
        ref = ReportRef(current.cluster, CommitId(""), data)
        by = git_auth.commit_signature(context.settings, now)
        path = context.settings.path
        self._commit = await context.repository.publish_report(path, ref, self._commit, by)
        self._published = current
        self._blocked_for = self._bucket.borrow(asyncio.get_running_loop().time())
        return 0.0

    async def _read_own(self, cluster: str) -> None:
        """The last published report of this cluster, whose proofs are continued."""
        settings = self._context.settings
        trust = git_auth.trust_of(settings)
        reports = await read(self._context.repository, settings.path, [cluster], trust)
        own = next(iter(reports), None)
        self._commit = own.ref.commit if own else None
        self._published = own.report if own else None
        self._current = self._current or self._published
        self._read = True
