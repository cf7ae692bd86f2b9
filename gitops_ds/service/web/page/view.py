"""The data of the page: the contract between it and the observers of the cluster and of Git."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from gitops_ds.core.objects import Body, Key
from gitops_ds.core.sources.bundle import Pool
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.startup_taints import NodeWait
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow


class PageEvent(msgspec.Struct, frozen=True):
    """One event, `at` seconds since 1970. `tone` is good, bad, warn or plain; it is about `key`,
    `commit`.
    """

    at: float
    kind: str
    words: str
    tone: str = "plain"
    key: Key | None = None
    commit: str = ""


class View(Protocol):
    """The data of the page. No method sends a request to the cluster."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""

    @property
    def version(self) -> int:
        """Increases with every change of the data."""

    @property
    def unread(self) -> str:
        """Why the cluster is not read yet; empty after the first lists."""

    def now(self) -> float:
        """The time of the cluster, in seconds since 1970."""

    def agents(self) -> Sequence[Agent]:
        """Every DaemonSet, sorted by namespace and name."""

    def wanted(self, key: Key) -> Body | None:
        """The manifest in Git; None if unknown."""

    def pools(self) -> Sequence[Pool]:
        """The pools in the cluster's file."""

    def sources(self) -> Sequence[SourceStatus]:
        """The status of each followed repository."""

    def clusters(self) -> Sequence[ClusterRow]:
        """All clusters in their order; empty if no cluster waits for another."""

    def waits(self) -> Mapping[str, NodeWait]:
        """The nodes with a startup taint that wait for agents, by name."""

    def events(self) -> Sequence[PageEvent]:
        """The events, newest first."""

    async def commits(self, ids: Sequence[str]) -> Mapping[str, CommitInfo]:
        """The metadata of those of these commits that Git has."""

    async def changed(self, version: int) -> None:
        """Returns as soon as the version differs."""
