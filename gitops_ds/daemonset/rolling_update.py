"""The rolling update: the outdated pods to replace now, within the budget of the update strategy.

It considers no failures of single nodes: missing, failed and duplicate pods are handled before
(`one_pod_per_node`). The node of this process comes last: if its agent were the network, and the
new one bad, the rollout could still be stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.core.daemonset import OnDelete, Pod, RollingUpdate
from gitops_ds.core.decision import CreatePod, DeleteCause, DeletePod
from gitops_ds.daemonset import pod_changes
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.pod_changes import PodChanges, PodFactory
from gitops_ds.kube.apimachinery import daemonsets

_UNAVAILABLE = "it runs an earlier template and is not available"
_OUTDATED = "it runs an earlier template"
_ENOUGH = "enough pods are available on wanted nodes"


def changes(layout: NodePodLayout) -> PodChanges:
    """The next changes of the rollout; none if it is complete, must wait, or is suspended by the
    annotation.

    In a suspended DaemonSet, `one_pod_per_node` still creates missing pods, of the wanted template.
    """
    if layout.seen.daemonset.suspended:
        return PodChanges()
    match layout.seen.daemonset.strategy:
        case OnDelete():
            return PodChanges()
        case RollingUpdate() as strategy:
            max_unavailable, max_surge = daemonsets.limits(strategy, layout.desired)
            return _surge(layout, max_surge) if max_surge else _replace(layout, max_unavailable)


def _in_turn(layout: NodePodLayout) -> Sequence[NodePods]:
    own = layout.seen.own_node
    return (
        sorted(layout.nodes, key=lambda node_pods: node_pods.node == own) if own else layout.nodes
    )


def _outdated(node_pods: NodePods, pod: Pod, why: str) -> DeletePod:
    return pod_changes.delete(node_pods, pod, DeleteCause.OUTDATED, why)


def _sort_out(layout: NodePodLayout, node_pods: NodePods) -> tuple[Pod | None, Pod | None, bool]:
    """The new pod, the old one, and whether a node has more of either."""
    new = old = None
    for pod in node_pods.pods:
        if pod.terminating:
            continue
        if layout.updated(pod):
            if new is not None:
                return None, None, True
            new = pod
        else:
            if old is not None:
                return None, None, True
            old = pod
    return new, old, False


def _replace(layout: NodePodLayout, max_unavailable: int) -> PodChanges:
    """Deletes old pods; placement creates the new ones.

    Assumes: every node that needs a pod has one or waits for the end of one. Invariant: of the
    available pods, at most `max_unavailable` minus the nodes without an available pod are deleted.
    An old pod that is not ready is always deleted, without a loss, but its node counts: otherwise
    too many others would be deleted too. Pods that are ready, but not yet for `minReadySeconds`,
    are deleted as long as `max_unavailable` allows more nodes without a ready pod; upstream deletes
    them all, and after the clock was set back this could be every pod.
    """
    unavailable = unready = 0
    broken: list[DeletePod] = []
    young: list[tuple[NodePods, Pod]] = []
    candidates: list[tuple[NodePods, Pod]] = []
    for node_pods in _in_turn(layout):
        if not node_pods.wanted and not node_pods.pods:
            continue
        new, old, _ = _sort_out(layout, node_pods)  # with an excess neither
        if (new is None) == (old is None):
            unavailable += 1
            unready += 1
        elif new is not None:
            unavailable += not layout.available(new)
            unready += not new.ready
        elif old is not None and layout.available(old):
            candidates.append((node_pods, old))
        elif old is not None:
            unavailable += 1
            unready += not old.ready
            if old.ready:
                young.append((node_pods, old))
            else:
                broken.append(_outdated(node_pods, old, _UNAVAILABLE))
    room = max(0, max_unavailable - unavailable)
    chosen = broken + [_outdated(node_pods, old, _OUTDATED) for node_pods, old in candidates[:room]]
    room = max(0, max_unavailable - unready)
    chosen += [_outdated(node_pods, old, _UNAVAILABLE) for node_pods, old in young[:room]]
    return PodChanges(deletes=tuple(sorted(chosen, key=lambda action: (action.node, action.key))))


def _surge(layout: NodePodLayout, max_surge: int) -> PodChanges:
    """Creates new pods beside the old ones; an old pod is deleted when the new one is available.

    Invariant: at most `max_surge` nodes have, through this function, a new pod that is not
    available beside an available old one. The replacement of an unavailable old pod is free and
    does not count. Old pods on nodes that no longer need one (but may keep it) are deleted while
    the available pods outnumber the wanted ones, so that the layout remains available when the
    DaemonSet moves to other nodes.
    """
    surge = available = 0
    free: list[CreatePod] = []
    candidates: list[NodePods] = []
    deletes: list[DeletePod] = []
    elsewhere: list[DeletePod] = []
    unplaced: dict[str, str] = {}
    factory = PodFactory(layout)
    for node_pods in _in_turn(layout):
        new, old, excess = _sort_out(layout, node_pods)  # not with an excess
        surge += excess
        shown = old or new
        available += shown is not None and layout.available(shown)
        if old is None or node_pods.placement is None:
            continue
        if new is not None:
            if layout.available(new):
                deletes.append(_outdated(node_pods, old, "its replacement is available"))
            else:
                surge += 1
        elif not node_pods.wanted:
            if layout.available(old):
                elsewhere.append(_outdated(node_pods, old, _ENOUGH))
            else:
                deletes.append(_outdated(node_pods, old, _UNAVAILABLE))
        elif reason := factory.misfit(node_pods):
            unplaced[node_pods.node] = reason
        elif layout.available(old):
            candidates.append(node_pods)
        else:
            free.append(factory.create(node_pods, "the earlier pod there is not available"))
    spare = max(0, min(available - layout.desired, len(elsewhere)))
    creates = free + [
        factory.create(node_pods, "its pod runs an earlier template")
        for node_pods in candidates[: max(0, max_surge - surge)]
    ]
    return PodChanges(
        tuple(sorted(creates, key=lambda action: action.node)),
        tuple(sorted(deletes + elsewhere[:spare], key=lambda action: (action.node, action.key))),
        unplaced=unplaced,
    )
