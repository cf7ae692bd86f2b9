"""Opens the cluster that a person means: kubeconfig and context, or the pod's own account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gitops_ds.cluster.fence import Fence
from gitops_ds.cluster.tally import Tally
from gitops_ds.model.bundle import ClusterFacts
from gitops_ds.model.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster; None leaves the choice to kubectl's rules."""

    kubeconfig: str | None = None
    context: str | None = None
    state_namespace: str = "gitops-ds"


@asynccontextmanager
async def fenced(connection: Connection, fence: Fence, tally: Tally) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """The cluster behind a fence, and the same without one, with connections of its own: for the lease, and for word to the leader.

    `tally` counts the requests of the first.
    """
    from gitops_ds import __version__
    from gitops_ds.cluster import access, http
    from gitops_ds.cluster.fence import Fenced

    found = access.access(connection.kubeconfig, connection.context)
    async with (
        http.HttpCluster(found, f"gitops-ds/{__version__}", guard=fence.check, tally=tally) as cluster,
        http.HttpCluster(found, f"gitops-ds/{__version__} leader-election") as free,
    ):
        yield Fenced(cluster, fence), free


@asynccontextmanager
async def opened(connection: Connection, facts: ClusterFacts | None = None) -> AsyncIterator[Cluster]:
    """The cluster; a context named in the cluster's file counts where the command line names none."""
    from gitops_ds import __version__
    from gitops_ds.cluster import access, http

    context = connection.context or (facts.context if facts and facts.context != "in-cluster" else None) or None
    async with http.HttpCluster(access.access(connection.kubeconfig, context), f"gitops-ds/{__version__}") as cluster:
        yield cluster
