"""The DaemonSet's pods by node, computed once in a reconciliation, for all further steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gitops_ds.core.daemonset import Counts, Pod
from gitops_ds.core.decision import Observation, StatusUpdate
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import node_eligibility
from gitops_ds.kube.apimachinery.node_eligibility import RUN, Placement


class NodePods(msgspec.Struct, frozen=True, gc=False):
    """A node and the DaemonSet's pods on it, the one to keep first. `placement` is None if the node
    does not exist.

    `pods` excludes pods that ended and are being deleted: a finalizer may keep such a pod
    indefinitely, and the node still needs an agent. `uids` are those of all pods.
    """

    node: str
    placement: Placement | None
    pods: tuple[Pod, ...]
    uids: tuple[str, ...]

    @property
    def wanted(self) -> bool:
        """Whether the node needs a pod."""
        return self.placement is RUN

    @property
    def settled(self) -> bool:
        """Whether it needs a pod and has one that has not ended, as nearly every node."""
        return self.placement is RUN and len(self.pods) == 1 and not self.pods[0].ended

    @property
    def staying(self) -> list[Pod]:
        """Its pods that are not being deleted."""
        return [pod for pod in self.pods if not pod.terminating]


class NodePodLayout(msgspec.Struct, frozen=True):
    """All nodes with their pods, sorted by node, including deleted nodes of existing pods. `hash`
    is that of the wanted revision.

    `outdated` are the hashes of the known revisions with another template.
    """

    seen: Observation
    hash: str
    nodes: tuple[NodePods, ...]
    outdated: frozenset[str]

    @property
    def desired(self) -> int:
        """The number of nodes that need a pod."""
        return sum(1 for node_pods in self.nodes if node_pods.wanted)

    def updated(self, pod: Pod) -> bool:
        """Whether a pod runs the wanted template.

        The template generation counts too: after a revision was replaced by an equal one, pods have
        the hash of the lost one, and must not restart for that (`IsPodUpdated` upstream). It does
        not count beside the hash of a revision with another template: a DaemonSet that was deleted
        and created again counts its generations from 1, and adopts pods of earlier ones.
        """
        if self.hash and pod.hash == self.hash:
            return True
        generation = self.seen.daemonset.template_generation
        return (
            bool(generation)
            and pod.template_generation == generation
            and pod.hash not in self.outdated
        )

    def available(self, pod: Pod) -> bool:
        """Whether a pod counts as available now."""
        seconds = self.seen.daemonset.min_ready_seconds
        return pod.ready and (not seconds or pod.available(seconds, self.seen.now))

    def counts(self) -> Counts:
        """The current counters of the status. Of several pods on a node only the one to keep
        counts, also while it is being deleted.
        """
        desired = current = misscheduled = ready = updated = available = 0
        for node_pods in self.nodes:
            if node_pods.placement is None:
                continue
            if not node_pods.wanted:
                misscheduled += bool(node_pods.pods)
                continue
            desired += 1
            if node_pods.pods:
                pod = node_pods.pods[0]
                current += 1
                ready += pod.ready
                updated += self.updated(pod)
                available += self.available(pod)
        return Counts(desired, current, misscheduled, ready, updated, available)

    def status_update(self) -> StatusUpdate | None:
        """The status to write; None if it is up to date."""
        daemonset, counts = self.seen.daemonset, self.counts()
        counter = (daemonset.raw.get("status") or {}).get("numberUnavailable") or 0
        if (counts, counts.unavailable) == (
            daemonset.counts,
            counter,
        ) and daemonset.observed_generation >= daemonset.generation:
            return None
        return StatusUpdate(counts, daemonset.generation)

    def next_available(self) -> float | None:
        """When the next ready pod becomes available after `minReadySeconds` (seconds since 1970);
        None if no pod waits for that.
        """
        seconds = self.seen.daemonset.min_ready_seconds
        if not seconds:
            return None
        times = (pod.available_at(seconds) for node_pods in self.nodes for pod in node_pods.pods)
        return min(
            (time for time in times if time is not None and time > self.seen.now), default=None
        )


def keep_first(pod: Pod) -> tuple[bool, float, str]:
    """The order in which one of several pods of a node is kept: on a node before waiting, older
    before younger.
    """
    return not pod.bound, pod.created, pod.name


def layout_of(
    seen: Observation, pods: Iterable[Pod], hash: str, outdated: frozenset[str]
) -> NodePodLayout:
    """The layout of the claimed pods. Pods without a node are omitted, as in upstream."""
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node:
            by_node.setdefault(pod.node, []).append(pod)
    place = node_eligibility.read(seen.daemonset.template).place
    nodes = [_on_node(node.name, place(node), by_node.pop(node.name, ())) for node in seen.nodes]
    if by_node:
        nodes += [_on_node(node, None, there) for node, there in by_node.items()]
        nodes.sort(key=lambda node_pods: node_pods.node)
    return NodePodLayout(seen, hash, tuple(nodes), outdated)


def _on_node(node: str, placement: Placement | None, pods: Sequence[Pod]) -> NodePods:
    if not pods:
        return NodePods(node, placement, (), ())
    if len(pods) == 1 and not pods[0].terminating:  # the usual case
        return NodePods(node, placement, (pods[0],), (pods[0].uid,))
    there = sorted((pod for pod in pods if not (pod.terminating and pod.ended)), key=keep_first)
    if any(pod.bound for pod in there):
        there = [_waiting(pod) if is_unbound(pod) else pod for pod in there]
    return NodePods(node, placement, tuple(there), tuple(sorted(pod.uid for pod in pods)))


def _waiting(pod: Pod) -> Pod:
    """A pod that waits, without the trouble that it is not bound yet."""
    return replace(pod, waits=True, trouble="", reason="", message="")


def is_unbound(pod: Pod) -> bool:
    """Whether the pod is a pinned one that the scheduler has not bound: beside an earlier pod that
    has not ended it waits.
    """
    return not (pod.bound or pod.terminating or pod.ended) and pod.pinned


def waiting(pods: Iterable[Pod]) -> frozenset[str]:
    """The UIDs of the pods of a DaemonSet that wait for the end of an earlier pod on their node."""
    pods = tuple(pods)
    unbound = [pod for pod in pods if is_unbound(pod)]
    if not unbound:
        return frozenset()
    taken = {pod.node for pod in pods if pod.bound and not (pod.terminating and pod.ended)}
    return frozenset(pod.uid for pod in unbound if pod.node in taken)
