"""The reports of all clusters of a repository for the page, read once a minute."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gitops_ds import errors
from gitops_ds.fleet import cluster_overview
from gitops_ds.fleet.cluster_overview import ClusterRow
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.cluster_waves import ReportsRead
from gitops_ds.model.rollouts.cluster_order import ClusterOrder
from gitops_ds.service.git import git_auth
from gitops_ds.service.rollouts import cluster_report_reader
from gitops_ds.service.rollouts.cluster_report_reader import ReportRepository
from gitops_ds.settings.repository import RepositorySettings

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
        reports = await cluster_report_reader.read(
            context.repository, context.settings.path, tuple(orders), trust
        )
        return cluster_overview.rows(orders, orders, cluster_report_reader.of(reports))
