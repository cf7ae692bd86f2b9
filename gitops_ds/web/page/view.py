"""The data of the page: the contract between it and the observers of the cluster and of Git."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.cluster_overview import ClusterRow
from gitops_ds.model.objects import Body, Key
from gitops_ds.model.sources.bundle import Pool
from gitops_ds.model.sources.source_status import SourceStatus
from gitops_ds.model.sources.source_tree import CommitInfo


class PageEvent(msgspec.Struct, frozen=True):
    """One line of what happened, `at` seconds since 1970. `tone` is good, bad, warn or plain; it is
    about `key`, `commit`.
    """

    at: float
    kind: str
    words: str
    tone: str = "plain"
    key: Key | None = None
    commit: str = ""


class View(Protocol):
    """Everything that the page shows. Nothing here asks the cluster, so a request for a page costs
    it nothing.
    """

    @property
    def cluster(self) -> str:
        """The cluster's name, for people."""

    @property
    def version(self) -> int:
        """Grows when anything that is shown has changed."""

    @property
    def unread(self) -> str:
        """Why the cluster is not read yet; empty after the first lists."""

    def now(self) -> float:
        """The time of the cluster, in seconds since 1970."""

    def agents(self) -> Sequence[Agent]:
        """Every DaemonSet, sorted by namespace and name."""

    def wanted(self, key: Key) -> Body | None:
        """The manifest in Git; None where it is unknown."""

    def pools(self) -> Sequence[Pool]:
        """The pools that the cluster's file names."""

    def sources(self) -> Sequence[SourceStatus]:
        """The status of each followed repository."""

    def clusters(self) -> Sequence[ClusterRow]:
        """All clusters in their order; none where no cluster waits for another."""

    def events(self) -> Sequence[PageEvent]:
        """What happened, newest first."""

    async def commits(self, ids: Sequence[str]) -> Mapping[str, CommitInfo]:
        """What Git says of those commits that it knows."""

    async def changed(self, version: int) -> None:
        """Returns as soon as the version is another."""
