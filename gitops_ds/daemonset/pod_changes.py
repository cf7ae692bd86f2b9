"""Pods to create and pods to delete: the result of placement and of a rollout. The bodies of new
pods are as upstream's controller makes them.

Their names are derived from the observation: the same one gives the same name, so a crash, a second
leader or a lost reply creates no second pod. A replacement has another name, which depends on the
UIDs of the pods on the node, or, on an empty node, on the UID of the last pod that vanished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Pod
from gitops_ds.core.decision import Action, CreatePod, DeleteCause, DeletePod, FailedPodBackoff
from gitops_ds.core.objects import POD, Key
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.kube.apimachinery import capacity, node_eligibility, revisions

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


_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DEFAULT_SCHEDULER = "default-scheduler"
_SUFFIX = 10
_LONGEST = 63  # a pod's name is its host name, a DNS label


class PodFactory:
    """Makes the pods of one reconciliation; their common parts are built once.

    The scheduler binds a pod to its node, by its node affinity. If the observation has the capacity
    of each node, the controller binds it, unless the template sets schedulerName.
    """

    def __init__(self, layout: NodePodLayout) -> None:
        daemonset = layout.seen.daemonset
        self._vanished = layout.seen.vanished
        self._base = f"{daemonset.key.name}\n{daemonset.uid}\n{layout.hash}"
        self._metadata = _metadata(daemonset, layout.hash)
        self._spec = {**daemonset.template.get("spec", {})}
        self._spec["tolerations"] = node_eligibility.daemon_tolerations(self._spec)
        self._affinity: dict[str, Any] = self._spec.get("affinity") or {}
        own_scheduler = self._spec.get("schedulerName") not in (None, "", _DEFAULT_SCHEDULER)
        self._rooms = None if own_scheduler else layout.seen.rooms
        self._asked = capacity.requested(self._spec) if self._rooms else {}
        self._ports = tuple(capacity.host_ports(self._spec)) if self._rooms else ()

    def misfit(self, node_pods: NodePods) -> str:
        """Why the pod does not fit on that node; empty if it fits, or if the scheduler decides."""
        room = self._rooms.get(node_pods.node) if self._rooms else None
        return capacity.misfit(self._asked, self._ports, room) if room else ""

    def create(self, node_pods: NodePods, why: str) -> CreatePod:
        """A pod for that node."""
        # A later leader knows the existing pods, but not those that vanished before.
        last = "" if node_pods.uids else self._vanished.get(node_pods.node, "")
        seed = "\n".join((self._base, node_pods.node, *node_pods.uids, last))
        metadata = {"name": pod_name(seed), **self._metadata}
        if self._rooms is None:
            spec = {**self._spec, "affinity": pinned_to(self._affinity, node_pods.node)}
        else:
            spec = {**self._spec, "nodeName": node_pods.node}
        body = {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": spec}
        return CreatePod(node_pods.node, body, seed, why)


def pod_name(seed: str, attempt: int = 0) -> str:
    """The name for a pod; each attempt has another one, in case that a foreign pod has the name.

    The first line of the seed is the DaemonSet's name. It is truncated to a total of 63 characters,
    without dots or hyphens at its end: a part between dots must not begin or end with a hyphen.
    """
    number = int.from_bytes(hashlib.sha256(f"{seed}\n{attempt}".encode()).digest()[:8], "big")
    suffix = ""
    for _ in range(_SUFFIX):
        number, index = divmod(number, len(_LETTERS))
        suffix += _LETTERS[index]
    return f"{seed.partition(chr(10))[0][: _LONGEST - _SUFFIX - 1].rstrip('.-')}-{suffix}"


def pinned_to(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """The affinity with a single required node term, for this node; other parts are unchanged."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required}}


def _metadata(daemonset: DaemonSet, hash: str) -> dict[str, Any]:
    template = daemonset.template.get("metadata") or {}
    labels = {**(template.get("labels") or {})}
    if daemonset.template_generation:
        labels[names.POD_TEMPLATE_GENERATION] = daemonset.template_generation
    labels[names.REVISION_HASH] = hash
    metadata: dict[str, Any] = {
        "namespace": daemonset.key.namespace,
        "labels": labels,
        "ownerReferences": [revisions.owner_reference(daemonset)],
    }
    for field in ("annotations", "finalizers"):
        if template.get(field):
            metadata[field] = template[field]
    return metadata
