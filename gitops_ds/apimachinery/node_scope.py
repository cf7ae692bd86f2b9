"""The nodes that a scope of a rollout policy names: by pool, and by node labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops_ds.apimachinery import label_selector, node_pools
from gitops_ds.model.live import Node
from gitops_ds.model.rollouts.rollout_policy import NodeScope
from gitops_ds.model.sources.bundle import Pool, Requirement


def matches(scope: NodeScope | None, node: Node, pools: Sequence[Pool]) -> bool:
    """Whether the node is in one of the scope's pools and meets all its conditions."""
    if scope is None:
        return True
    if scope.pool and node_pools.pool_of(node, pools) not in scope.pool:
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
