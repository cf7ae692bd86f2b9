"""The nodes that get no pod of an agent, by the reason in its template."""

from __future__ import annotations

from collections.abc import Mapping

from gitops_ds.core.decision import Observation
from gitops_ds.core.live import Node
from gitops_ds.kube.apimachinery import node_eligibility
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer


def by_reason(seen: Observation) -> Mapping[str, tuple[str, ...]]:
    """The sorted names of the nodes that the node selector, the affinity or a taint excludes, by
    the reason.
    """
    placer = node_eligibility.read(seen.daemonset.template)
    found = dict[str, list[str]]()
    for node in sorted(seen.nodes, key=lambda node: node.name):
        if placer.place(node) is not Placement.RUN:
            found.setdefault(_reason(placer, node), []).append(node.name)
    return {reason: tuple(nodes) for reason, nodes in sorted(found.items())}


def _reason(placer: Placer, node: Node) -> str:
    if not placer.selects(node):
        return "not selected by nodeSelector or node affinity"
    taints = (
        taint for taint in node.taints if node_eligibility.untolerated(placer.tolerations, (taint,))
    )
    return f"not tolerated: {', '.join(taint.text for taint in taints)}"
