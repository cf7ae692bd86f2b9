"""Pods to create and pods to delete: the result of placement and of a rollout."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.daemonset.node_pods import NodePods
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.decision import Action, CreatePod, DeleteCause, DeletePod, FailedPodBackoff
from gitops_ds.model.objects import POD, Key

# Upstream's BurstReplicas: the maximum of creates, and of deletes, in one reconciliation. It also
# waits until its watch has shown the created pods, at most five minutes (ExpectationsTimeout), so
# that thousands of nodes do not pull an image within a second.
BURST = 250


class PodChanges(msgspec.Struct, frozen=True):
    """Creates and deletes, each sorted by node. `wake_at` is the time of the next change without
    any event (seconds since 1970).

    `unplaced` maps a node to the reason why it lacks capacity for a wanted pod. `later` are further
    nodes that need a pod, after the first BURST.
    """

    creates: tuple[CreatePod, ...] = ()
    deletes: tuple[DeletePod, ...] = ()
    backoffs: Mapping[str, FailedPodBackoff] = msgspec.field(default_factory=dict)
    wake_at: float | None = None
    unplaced: Mapping[str, str] = msgspec.field(default_factory=dict)
    later: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether any pod is created or deleted."""
        return bool(self.creates or self.deletes)

    def actions(self, unshown: int) -> tuple[Action, ...]:
        """The first BURST of each kind, creates first; BURST minus the pods that the watch has not
        shown yet limits the creates.
        """
        return (*self.creates[: max(0, BURST - unshown)], *self.deletes[:BURST])


def delete(node_pods: NodePods, pod: Pod, cause: DeleteCause, why: str) -> DeletePod:
    """The deletion of a pod of that node."""
    return DeletePod(
        Key(POD.group, POD.kind, pod.namespace, pod.name), pod.uid, node_pods.node, cause, why
    )
