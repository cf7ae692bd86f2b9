"""Groups of nodes that are equal for every pod template, and short lists of their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from gitops_ds.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.model.live import Census, Node
from gitops_ds.model.plain_text import counted

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


def groups(nodes: Iterable[Node], keys: Collection[str]) -> Groups:
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
