"""What a change of an agent requests on its nodes."""

from __future__ import annotations

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """The additional (or lower) request of a resource, in thousandths of its unit: each pod, and
    all nodes together.

    `nodes` is the number of nodes with the agent afterwards, None if other nodes have it than
    before: then `total` is not a product.
    """

    resource: str
    each: int
    nodes: int | None
    total: int
