"""Opens the cluster that a person means: kubeconfig and context, or the pod's own account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gitops_ds.model.bundle import ClusterFacts
from gitops_ds.model.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster; None leaves the choice to kubectl's rules."""

    kubeconfig: str | None = None
    context: str | None = None
    state_namespace: str = "gitops-ds"


@asynccontextmanager
async def opened(connection: Connection, facts: ClusterFacts | None = None) -> AsyncIterator[Cluster]:
    """The cluster; a context named in the cluster's file counts where the command line names none."""
    from gitops_ds import __version__
    from gitops_ds.cluster import access, http

    context = connection.context or (facts.context if facts and facts.context != "in-cluster" else None) or None
    async with http.HttpCluster(access.access(connection.kubeconfig, context), f"gitops-ds/{__version__}") as cluster:
        yield cluster
