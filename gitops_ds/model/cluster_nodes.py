"""The nodes of a cluster, observed or declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_ds.model.live import Node
from gitops_ds.model.objects import Body


@dataclass(frozen=True)
class Census:
    """The nodes of a cluster, by name.

    `pools` holds the pool of each node that is in one, `room` a node's capacity for pods (in
    thousandths of a resource's unit) if known, `daemonsets` those of the cluster. `declared`: the
    nodes are those of the pools in the cluster's file, not observed ones; of their labels only the
    `keys` are known then.
    """

    nodes: tuple[Node, ...]
    pools: Mapping[str, str] = field(default_factory=dict)
    room: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    daemonsets: tuple[Body, ...] = ()
    declared: bool = False
    keys: frozenset[str] = frozenset()
