"""What is known of a cluster's nodes, and whether anybody has seen them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_ds.model.live import Node
from gitops_ds.model.objects import Body


@dataclass(frozen=True)
class Census:
    """The nodes of a cluster, by name.

    `pools` holds the pool of each node that is in one, `room` what a node has for pods (in
    thousandths of a resource's unit) where that is known, `daemonsets` those that the cluster runs.
    `declared`: the nodes are what the cluster's file says of its pools, nobody has seen them; of
    their labels only the `keys` are known then.
    """

    nodes: tuple[Node, ...]
    pools: Mapping[str, str] = field(default_factory=dict)
    room: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    daemonsets: tuple[Body, ...] = ()
    declared: bool = False
    keys: frozenset[str] = frozenset()
