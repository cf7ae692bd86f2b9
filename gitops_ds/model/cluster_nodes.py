"""The nodes of a cluster, observed or declared."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.model.live import Node
from gitops_ds.model.objects import Body


class Census(msgspec.Struct, frozen=True):
    """The nodes of a cluster, by name.

    `pools` has the pool of each node in a pool, `room` the capacity of a node for pods (in
    thousandths of a resource's unit) if known, `daemonsets` those of the cluster. `declared`: the
    nodes are those of the pools in the cluster's file, not observed ones, and only the labels with
    `keys` are known.
    """

    nodes: tuple[Node, ...]
    pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    room: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    daemonsets: tuple[Body, ...] = ()
    declared: bool = False
    keys: frozenset[str] = frozenset()
