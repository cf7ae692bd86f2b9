"""How a DaemonSet does, for people: which nodes are not well, for what reason, and whether the template or the node is to blame."""

from __future__ import annotations

from collections import Counter

from gitops_ds.core import decide
from gitops_ds.core.fleet import Fleet, Spot
from gitops_ds.model import names
from gitops_ds.model.daemonset import OnDelete, Pod
from gitops_ds.model.decision import Blame, Health, HealthState, NodeHealth, Observation

STALLED_AFTER = 600.0  # seconds not ready without a reason; a Deployment's default progressDeadlineSeconds

# What a container or pod waits for when something in its template can be wrong. Any other reason is taken as passing.
_TEMPLATE_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "Failed",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_ON_ITS_WAY = frozenset({"NoPod", "Starting", "Outdated", "Terminating"})


def judge(seen: Observation | None) -> Health:
    """The health of a DaemonSet; None stands for one that is not in the cluster.

    Failed: the template is to blame, for no node runs it well. Degraded: some node's agent is broken. Progressing: nothing is
    broken, and something is on its way. Suspended wins over all but Missing.
    """
    if seen is None:
        return Health(HealthState.MISSING, "not in the cluster")
    daemonset = seen.daemonset
    if daemonset.selector is None:
        return Health(HealthState.FAILED, decide.SELECTING_ALL)
    if daemonset.deleting:
        return Health(HealthState.PROGRESSING, "being deleted")
    spread = decide.layout(seen)
    nodes = tuple(_nodes(spread))
    if daemonset.suspended:
        return Health(HealthState.SUSPENDED, f"suspended by the annotation {names.SUSPEND}", nodes)
    return _sum_up(spread, nodes)


def _sum_up(spread: Fleet, nodes: tuple[NodeHealth, ...]) -> Health:
    desired = spread.desired
    broken = tuple(node for node in nodes if node.reason not in _ON_ITS_WAY)
    failed = tuple(node for node in broken if node.blame is Blame.TEMPLATE)
    if failed:
        return Health(HealthState.FAILED, f"the template fails on {_listed(failed, desired)}", nodes)
    if broken:
        return Health(HealthState.DEGRADED, f"not well on {_listed(broken, desired)}", nodes)
    outdated = sum(1 for node in nodes if node.reason == "Outdated")
    if isinstance(spread.seen.daemonset.strategy, OnDelete):
        nodes = tuple(node for node in nodes if node.reason != "Outdated")
        if not nodes and outdated:
            left = f"{desired} of {desired} available; {outdated} run an earlier revision until their pods are deleted"
            return Health(HealthState.HEALTHY, left)
    if nodes:
        return Health(HealthState.PROGRESSING, f"{desired - len(nodes)} of {desired} nodes done", nodes)
    return Health(HealthState.HEALTHY, f"{desired} of {desired} nodes available")


def _nodes(spread: Fleet) -> list[NodeHealth]:
    """One entry a node that shall run a pod and has no available one of the wanted template."""
    works = any(spread.updated(pod) and spread.available(pod) for spot in spread.spots for pod in spot.pods)
    ready = {node.name: node.ready for node in spread.seen.nodes}
    found = (_node(spread, spot, works, ready.get(spot.node, True)) for spot in spread.spots if spot.wanted)
    return [node for node in found if node is not None]


def _node(spread: Fleet, spot: Spot, works: bool, node_ready: bool) -> NodeHealth | None:
    """`works`: another node runs the wanted template well, so it can't be the template's fault alone."""
    staying = spot.staying
    if not staying:
        return NodeHealth(spot.node, "Terminating" if spot.pods else "NoPod", Blame.UNKNOWN)
    pod = next((pod for pod in staying if spread.updated(pod)), staying[0])
    current = spread.updated(pod)
    if spread.available(pod):
        return None if current else NodeHealth(spot.node, "Outdated", Blame.UNKNOWN, f"{pod.name} runs an earlier template")
    if not node_ready:
        return NodeHealth(spot.node, "NodeNotReady", Blame.NODE, f"{pod.name} can't be ready while its node is not")
    reason = _reason(spread, pod)
    if reason in _TEMPLATE_REASONS or reason == "NotReady":
        blame = Blame.TEMPLATE if current and not works else Blame.NODE
    else:
        blame = Blame.UNKNOWN if reason in _ON_ITS_WAY else Blame.NODE
    return NodeHealth(spot.node, reason, blame, pod.message or pod.name)


def _reason(spread: Fleet, pod: Pod) -> str:
    if pod.trouble:
        return pod.trouble
    since = pod.created if pod.ready_since is None or pod.ready else pod.ready_since
    return "NotReady" if not pod.ready and spread.seen.now - since > STALLED_AFTER else "Starting"


def _listed(nodes: tuple[NodeHealth, ...], desired: int) -> str:
    """`3 of 5 nodes (ImagePullBackOff: node-1, node-2, node-3)`; five names at most."""
    reasons = Counter(node.reason for node in nodes)
    parts = []
    for reason in sorted(reasons, key=lambda reason: (-reasons[reason], reason)):
        on = [node.node for node in nodes if node.reason == reason]
        parts.append(f"{reason}: {', '.join(on[:5])}{' and more' if len(on) > 5 else ''}")
    return f"{len(nodes)} of {desired} nodes ({'; '.join(parts)})"
