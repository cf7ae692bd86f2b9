"""The requests of an agent on its nodes, and how a change raises or lowers them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from gitops_ds.core.change import Cost
from gitops_ds.core.objects import Body
from gitops_ds.core.plain_text import counted
from gitops_ds.kube.apimachinery import capacity, quantities

# The resources whose requests are counted, and the unit of their sums.
UNITS = {"cpu": "cores", "memory": "memory"}


def of_pod(spec: Body) -> Mapping[str, int]:
    """The requests of a pod, in thousandths of the unit; empty if one is invalid."""
    try:
        requests = capacity.requested(spec)
    except ValueError:  # DS010 reports invalid quantities
        return {}
    return {resource: requests[resource] for resource in UNITS if requests.get(resource)}


def of_change(
    old: Body, new: Body, before: AbstractSet[str], after: AbstractSet[str]
) -> Iterator[Cost]:
    """The costs when pods with the spec `new` on the nodes `after` replace those of `old` on
    `before`.
    """
    was, now = of_pod(old), of_pod(new)
    for resource in UNITS:
        each = now.get(resource, 0) - was.get(resource, 0)
        total = now.get(resource, 0) * len(after) - was.get(resource, 0) * len(before)
        if total:
            yield Cost(resource, each, len(after) if before == after else None, total)


def summed(costs: Sequence[Cost]) -> str:
    """The total requests of several changes: `+47.2 cores, +73.8Gi memory`."""
    totals = {
        resource: sum(cost.total for cost in costs if cost.resource == resource)
        for resource in UNITS
    }
    return ", ".join(_total(resource, total) for resource, total in totals.items() if total)


def line(costs: Sequence[Cost]) -> str:
    """The costs of one change: `requests +50m cpu x 7 nodes = +0.35 cores`."""
    nodes = {cost.nodes for cost in costs}
    total = summed(costs)
    if None in nodes or len(nodes) > 1:
        return f"requests {total} over all its nodes"
    each = ", ".join(f"{_signed(cost.resource, cost.each)} {cost.resource}" for cost in costs)
    return f"requests {each} x {counted(costs[0].nodes or 0, 'node')} = {total}"


def words(requests: Mapping[str, int]) -> str:
    """The requests of an agent on all its nodes: `0.35 cores, 1.2Gi memory`."""
    totals = (_total(resource, requests[resource]) for resource in UNITS if requests.get(resource))
    return ", ".join(total.removeprefix("+") for total in totals)


def as_json(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """The costs in cores and bytes."""
    return [
        {
            "resource": cost.resource,
            "perPod": cost.each / 1000,
            "nodes": cost.nodes,
            "total": cost.total / 1000,
        }
        for cost in costs
    ]


def _total(resource: str, amount: int) -> str:
    """A sum with its unit: `-0.3 cores`, `+73.8Gi memory`."""
    text = f"{amount / 1000:+,.10g}" if resource == "cpu" else _signed(resource, amount)
    return f"{text} {UNITS[resource]}"


def _signed(resource: str, amount: int) -> str:
    sign = "+" if amount > 0 else "-"
    if resource == "cpu" and abs(amount) >= 1000:
        return f"{sign}{abs(amount) / 1000:,.10g}"
    return sign + quantities.amount(resource, abs(amount))
