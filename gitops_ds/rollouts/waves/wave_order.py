"""The order of the clusters in waves, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops_ds.core import duration
from gitops_ds.core.rollouts.cluster_report import ClusterOrder


def words(order: ClusterOrder) -> str:
    """`wave 2 of 3, after staging (soak 1.0 h)`; empty without an order."""
    if not order.exists:
        return ""
    soak = f" (soak {duration.text(order.soak)})" if order.soak else ""
    after = f", after {', '.join(order.after)}{soak}" if order.after else ""
    return f"wave {order.wave} of {order.waves}{after}"


def waves(orders: Mapping[str, ClusterOrder]) -> Sequence[tuple[str, ...]]:
    """The names of the clusters in each wave, in the order of the waves."""
    numbers = sorted({order.wave for order in orders.values()})
    return [
        tuple(name for name, order in sorted(orders.items()) if order.wave == number)
        for number in numbers
    ]


def summary(orders: Mapping[str, ClusterOrder]) -> str:
    """`commits reach the clusters in 2 waves: staging; eu-1, eu-2`; empty without an order."""
    if not any(order.exists for order in orders.values()):
        return ""
    rows = waves(orders)
    return f"commits reach the clusters in {len(rows)} waves: {'; '.join(map(', '.join, rows))}"


def as_json(order: ClusterOrder) -> dict[str, Any]:
    """The place of a cluster in the order; times in seconds."""
    return {
        "wave": order.wave,
        "waves": order.waves,
        "after": list(order.after),
        "soak": order.soak,
        "within": order.within,
    }
