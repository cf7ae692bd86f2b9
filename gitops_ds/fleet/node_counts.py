"""The counters of an agent by its existing nodes, each counted once: those of `get`, the page and
JSON. Pure.
"""

from __future__ import annotations

from collections import Counter

from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.model import names
from gitops_ds.model.daemonset import Counts
from gitops_ds.model.decision import Observation
from gitops_ds.model.values import replace
from gitops_ds.rollouts import node_steps


def count(layout: NodePodLayout) -> Counts | None:
    """The counters of the status as they are now. With a rollout policy `updated` are the desired
    nodes with the target or the proven template, while the status counts the DaemonSet's own one.

    None without nodes: they may not be listed.
    """
    seen = layout.seen
    if not seen.nodes:
        return None
    counts, target = layout.counts(), None
    if names.ROLLOUT_POLICY in seen.daemonset.annotations:
        target = target_revisions.target_of(seen.daemonset, seen.revisions)
    if target is None:
        return counts
    updated = sum(
        any(node_steps.runs_target(layout, target, pod) for pod in node_pods.staying)
        for node_pods in layout.nodes
        if node_pods.wanted
    )
    return replace(counts, updated=updated)


def without_nodes(seen: Observation) -> Counts:
    """The counters of the status; in a staged rollout `updated` are the nodes of the target's
    pods.
    """
    counts = seen.daemonset.counts or Counts()
    if names.TARGET not in seen.daemonset.annotations:
        return counts
    target = target_revisions.target_of(seen.daemonset, seen.revisions)
    if target is None or not target.staged:
        return counts
    return replace(counts, updated=by_hash(seen)[target.hash])


def by_hash(seen: Observation) -> Counter[str]:
    """The number of nodes that run each revision, by the hash of the revision."""
    nodes = {node.name for node in seen.nodes}
    return Counter(
        hash
        for hash, _ in {
            (pod.hash, pod.node)
            for pod in seen.pods
            if pod.node and not pod.terminating and (not nodes or pod.node in nodes)
        }
    )
