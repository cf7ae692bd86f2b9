"""The target of a plan and of a deployer: a cluster, the location of the state, and the owner of
the objects.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from gitops_ds.core.cluster import Cluster, ClusterReader
from gitops_ds.core.daemonset import DaemonSet, Pod
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.deploy import deletion_contents
from gitops_ds.rollouts.state.announced_daemonsets import DaemonSetWrite


async def _no_announcement(_writes: Iterable[DaemonSetWrite]) -> None:
    """Stores nothing: without a ledger every annotation counts."""


# The pods of a DaemonSet and the orphans that it selects, by watches; None if they may be outdated.
KnownPods = Callable[[DaemonSet], Sequence[Pod] | None]


class PlanTarget(msgspec.Struct, frozen=True):
    """The cluster, the namespace of the state, the owner id of the objects, and the clock there.

    `wrote` is called for each written object with its version, "" for a deletion. `contents` lists
    the contents of a Namespace that would be deleted. `contains`: whether a commit is in the
    history of the repository. `unused` are former ids of the owner without objects. `attested`
    returns a revision with only the records that the service wrote. `known_pods` are pods that need
    no list.
    """

    cluster: ClusterReader
    namespace: str
    owner: str
    repository: str
    path: str = ""
    clock: Callable[[], float] = time.time
    wrote: Callable[[Key, str], None] = lambda _key, _version: None
    contents: deletion_contents.Read = deletion_contents.read
    contains: Callable[[CommitId], Awaitable[bool]] | None = None
    unused: frozenset[str] = frozenset()
    attested: Callable[[Revision], Revision] = lambda revision: revision
    known_pods: KnownPods = lambda _: None

    def for_writes(self, cluster: Cluster) -> DeployTarget:
        """The same target, with the cluster as one that may be written."""
        return DeployTarget(**{**msgspec.structs.asdict(self), "cluster": cluster})


class DeployTarget(PlanTarget, frozen=True):
    """The target of an apply: a cluster that may be written. `announce` stores which annotations of
    DaemonSets count in their rollouts; it raises ClusterError.
    """

    cluster: Cluster
    announce: Callable[[Iterable[DaemonSetWrite]], Awaitable[None]] = _no_announcement
