"""How long nodes waited for an agent after they joined, by its pods that still run there."""

from __future__ import annotations

from statistics import median

from gitops_ds.model.daemonset import Pod
from gitops_ds.model.decision import Observation
from gitops_ds.model.impact import JoinTime
from gitops_ds.model.live import Node

# Seconds after its node within which the first pod of a node is created.
_FIRST_WITHIN = 60.0


def measured(seen: Observation) -> JoinTime | None:
    """The time of the nodes whose first pod runs and was never restarted; None without any."""
    nodes = {node.name: node for node in seen.nodes}
    times = [
        pod.ready_since + seen.daemonset.min_ready_seconds - nodes[pod.node].created
        for pod in seen.pods
        if pod.node in nodes and pod.ready_since is not None and _is_first(pod, nodes[pod.node])
    ]
    return JoinTime(median(times), len(times)) if times else None


def _is_first(pod: Pod, node: Node) -> bool:
    is_of_join = 0.0 <= pod.created - node.created <= _FIRST_WITHIN
    return pod.ready and not pod.restarts and bool(node.created) and is_of_join
