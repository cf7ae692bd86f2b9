"""Opens the cluster of a command: by kubeconfig and context, or by the pod's service account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, ClusterReader
from gitops_ds.core.sources.bundle import ClusterFacts
from gitops_ds.core.values import replace
from gitops_ds.kube.client.fence import Fence

if TYPE_CHECKING:
    from gitops_ds.kube.client.config import ClientConfig
    from gitops_ds.kube.client.transport import RequestCounter


class Connection(msgspec.Struct, frozen=True):
    """The options of a connection; None selects kubectl's rules. `writes`: the command may write to
    the cluster.

    `trusted` are the clusters of the repository whose files may choose the context: those that the
    user named.
    """

    kubeconfig: str | None = None
    context: str | None = None
    state_namespace: str = "gitops-ds"
    trusted: frozenset[str] = frozenset()
    writes: bool = False

    def naming(self, *names: str) -> Connection:
        """The same options, with these clusters named by the user."""
        return replace(self, trusted=frozenset(filter(None, names)))


@asynccontextmanager
async def fenced(
    connection: Connection, fence: Fence, counter: RequestCounter, *, brief_replies: bool
) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """The cluster of the service behind a fence, and the same one without a fence and with separate
    connections: for the lease, and for messages to the leader.

    `counter` counts the requests of the first, and `brief_replies` is for its writes of pods.
    """
    from gitops_ds import __version__
    from gitops_ds.kube.client import config, rest

    access = config.access(connection.kubeconfig, connection.context)
    async with (
        rest.HttpCluster(
            access,
            f"gitops-ds/{__version__}",
            fence=fence,
            counter=counter,
            brief_replies=brief_replies,
        ) as cluster,
        rest.HttpCluster(access, f"gitops-ds/{__version__} leader-election") as free,
    ):
        yield cluster, free


@asynccontextmanager
async def reading(
    connection: Connection, facts: ClusterFacts | None = None
) -> AsyncIterator[ClusterReader]:
    """The cluster, for reads. Without a context in the command line, the context is that of the
    cluster's file, if the user chose that cluster or the kubeconfig's current context is the same.

    Raises UsageError for a context that only a file of the repository chooses: it may come from an
    untrusted change.
    """
    from gitops_ds.kube.client import rest

    access, user_agent = _access(connection, facts)
    async with rest.HttpReader(access, user_agent) as cluster:
        yield cluster


@asynccontextmanager
async def writing(
    connection: Connection, facts: ClusterFacts | None = None
) -> AsyncIterator[Cluster]:
    """As `reading`, for writes as well. Raises RuntimeError for a command that may not write."""
    from gitops_ds.kube.client import rest

    if not connection.writes:
        raise RuntimeError("this command is declared to write nothing to a cluster")
    access, user_agent = _access(connection, facts)
    async with rest.HttpCluster(access, user_agent) as cluster:
        yield cluster


def _access(connection: Connection, facts: ClusterFacts | None) -> tuple[ClientConfig, str]:
    """The configuration and the user agent."""
    from gitops_ds import __version__
    from gitops_ds.kube.client import config

    context = connection.context or _of_file(connection, facts)
    return config.access(connection.kubeconfig, context), f"gitops-ds/{__version__}"


def _of_file(connection: Connection, facts: ClusterFacts | None) -> str | None:
    if facts is None or facts.context in {"", "in-cluster"}:
        return None
    if facts.name in connection.trusted:
        return facts.context
    from gitops_ds.kube.client import config

    current = config.current_context(connection.kubeconfig)
    # the pod's service account, or the context that kubectl would use
    if current in {None, facts.context}:
        return current
    raise errors.UsageError(
        f"clusters/{facts.name}.yaml names the context {facts.context}, and the current context "
        "of the kubeconfig is "
        f"{current or 'not set'}: choose with --cluster {facts.name} or --context"
    )
