"""The nodes of a check, and groups of nodes that are equal for every pod template.

The nodes are those of a cluster snapshot, else those that the cluster's file declares. A declared
node has the labels that its pool requires and sets, and no other properties. If one pool has no
number of nodes, no nodes are created: a partial cluster would cause wrong findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from gitops_ds.core.live import Census, Live, Node
from gitops_ds.core.objects import Key
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.rollout_policy import NodeScope
from gitops_ds.core.sources.bundle import ClusterFacts, Pool, Requirement
from gitops_ds.kube.apimachinery import label_selector
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer

# The labels by which providers and autoscalers name the pool of a node.
_POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "doks.digitalocean.com/node-pool",
    "node.kubernetes.io/pool",
)
_OS, _ARCH, _NAME = "kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"
_MOST: Final = 20_000  # nodes of a cluster; Kubernetes itself is tested up to 5,000


def census(facts: ClusterFacts, live: Live) -> Census | None:
    """The existing nodes, else the declared ones; None if they are unknown."""
    if not live.nodes:
        return declared(facts.pools) if facts.pools else None
    daemonsets = tuple(body for key, body in live.objects.items() if key.is_daemonset)
    pools = {node.name: pool for node in live.nodes if (pool := pool_of(node, facts.pools))}
    return Census(live.nodes, pools, live.allocatable, daemonsets)


def pool_of(node: Node, pools: Sequence[Pool]) -> str:
    """The first of the cluster's pools that the node matches, else the provider's name of its pool;
    else empty.
    """
    labels = node.labels
    for pool in pools:
        if label_selector.all_match(pool.match, labels):
            return pool.name
    for label in _POOL_LABELS:
        if name := labels.get(label):
            return name
    return ""


def declared(pools: tuple[Pool, ...]) -> Census | None:
    """The nodes of these pools; the same object for equal pools, so that similar clusters are
    checked once.
    """
    if any(pool.nodes is None for pool in pools) or sum(pool.nodes or 0 for pool in pools) > _MOST:
        return None
    return _declared(pools)


def silent(pools: Sequence[Pool]) -> tuple[str, ...]:
    """The pools without a number of nodes."""
    return tuple(pool.name for pool in pools if pool.nodes is None)


# the clusters of a repository have few distinct sets of pools, each used on both sides of a change
@lru_cache(64)
def _declared(pools: tuple[Pool, ...]) -> Census | None:
    nodes, of, room = [], {}, {}
    for pool in pools:
        amounts = dict(pool.allocatable)
        for node in _nodes(pool):
            nodes.append(node)
            of[node.name] = pool.name
            if amounts:
                room[node.name] = amounts
    if not nodes:
        return None
    keys = frozenset.intersection(*(frozenset(node.labels) for node in nodes))
    label_keys = frozenset(
        key
        for pool in pools
        for key in (*dict(pool.labels), *(condition.key for condition in pool.match))
    )
    return Census(
        tuple(sorted(nodes, key=lambda node: node.name)),
        of,
        room,
        declared=True,
        keys=keys | label_keys,
    )


def _nodes(pool: Pool) -> Iterator[Node]:
    width = len(str(pool.nodes or 0))
    for number in range(1, (pool.nodes or 0) + 1):
        name = f"{pool.name}-{number:0{width}d}"
        labels = {
            _NAME: name,
            _OS: "linux",
            _ARCH: "amd64",
            **_matching(pool, number - 1),
            **dict(pool.labels),
        }
        yield Node(name, labels, pool.taints)


def _matching(pool: Pool, number: int) -> Mapping[str, str]:
    """Labels that meet the pool's conditions; several values alternate. A condition without a text
    in its values is a finding, and no label meets it.
    """
    labels = {}
    for condition in pool.match:
        if condition.operator == "In" and condition.values:
            number, turn = divmod(number, len(condition.values))
            labels[condition.key] = condition.values[turn]
        elif condition.operator == "Exists":
            labels.setdefault(condition.key, "true")
    return labels


def others(
    census: Census, ours: Mapping[Key, object]
) -> Iterator[tuple[Key, Mapping[str, object]]]:
    """The DaemonSets that the cluster runs and the repository doesn't have."""
    for body in census.daemonsets:
        metadata = body.get("metadata") or {}
        key = Key(
            "apps",
            "DaemonSet",
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
        )
        if key not in ours:
            yield key, body


def in_scope(scope: NodeScope | None, node: Node, pools: Sequence[Pool]) -> bool:
    """Whether the node is in one of the scope's pools and meets all its conditions."""
    if scope is None:
        return True
    if scope.pool and pool_of(node, pools) not in scope.pool:
        return False
    return label_selector.all_match(tuple(_requirements(scope)), node.labels)


def _requirements(scope: NodeScope) -> Iterator[Requirement]:
    for match in scope.match:
        if match.in_ is not None:
            yield Requirement(match.key, "In", match.in_)
        if match.not_in is not None:
            yield Requirement(match.key, "NotIn", match.not_in)
        if match.exists is not None or (match.in_ is None and match.not_in is None):
            yield Requirement(match.key, "DoesNotExist" if match.exists is False else "Exists")


Groups = Sequence[tuple[Node, ...]]
_SHOWN = 2


def keys_of(placers: Iterable[Placer]) -> frozenset[str]:
    """The labels of nodes that these templates use."""
    keys: set[str] = set()
    for placer in placers:
        keys |= placer.node_selector.keys()
        for term in placer.terms or ():
            keys |= {requirement.key for requirement in term.labels}
    return frozenset(keys)


def equal_groups(nodes: Iterable[Node], keys: Collection[str]) -> Groups:
    """Groups of nodes with the same values of these labels and the same taints."""
    ordered = sorted(keys)
    by_signature: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        by_signature.setdefault((*map(node.labels.get, ordered), node.taints), []).append(node)
    return tuple(map(tuple, by_signature.values()))


def placed(placer: Placer, groups: Groups) -> dict[Placement, list[Node]]:
    """The nodes by placement; the groups must distinguish every label that the template uses."""
    by_name = placer.node_name or any(term.names for term in placer.terms or ())
    by_placement: dict[Placement, list[Node]] = {placement: [] for placement in Placement}
    for group in groups:
        if by_name:
            for node in group:
                by_placement[placer.place(node)].append(node)
        else:
            by_placement[placer.place(group[0])] += group
    return by_placement


def summary(names: Collection[str], census: Census, *, shown: int = _SHOWN) -> str:
    """`6 nodes of pool small: node-a, node-b and 4 more`. Declared nodes have no
    names.
    """
    ordered = sorted(names)
    count = counted(len(ordered), "node")
    pools = by_pool(ordered, census)
    if len(pools) == 1:
        count += "".join(f" of pool {pool}" for pool in pools if pool)
    elif pools:
        count += f" ({', '.join(f'{number:,} of {_pool(pool)}' for pool, number in pools.items())})"
    return count if census.declared or not ordered else f"{count}: {listed(ordered, shown)}"


def _pool(name: str) -> str:
    return f"pool {name}" if name else "no pool"


def by_pool(names: Iterable[str], census: Census) -> dict[str, int]:
    """The number of nodes in each pool, the largest first; nodes without a pool have the empty
    name.
    """
    return dict(
        sorted(
            Counter(census.pools.get(name, "") for name in names).items(),
            key=lambda one: (-one[1], one[0]),
        )
    )


def listed(ordered: Sequence[str], shown: int = _SHOWN) -> str:
    """`a, b and 4 more`; with one more than `shown`, all are listed."""
    if len(ordered) <= shown + 1:
        return ", ".join(ordered)
    return f"{', '.join(ordered[:shown])} and {len(ordered) - shown:,} more"
