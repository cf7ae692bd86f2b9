"""Indexes of the cache, updated with each event: pods of DaemonSets by node, with the nodes that
changed; the nodes with other pods; objects by their controller's UID, and orphans by namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import DAEMONSET
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import target_revisions


class PodsByNode:
    """The index, so that one node is looked at without the pods of the others."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}
        self._touched: set[str] = set()

    def on(self, node: str) -> Sequence[Pod]:
        """The pods of a node."""
        return tuple(self._pods.get(node, {}).values())

    def touch(self, nodes: Iterable[str]) -> None:
        """Notes that nodes changed, apart from their pods."""
        self._touched.update(nodes)

    def take_touched(self) -> set[str]:
        """The nodes that changed, or whose pods did, since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def replace(self, pods: Iterable[Pod]) -> None:
        """Replaces all known pods."""
        self._touched |= self._pods.keys()
        self._pods = {}
        for pod in pods:
            self.changed(None, pod)

    def changed(self, before: Pod | None, after: Pod | None) -> None:
        """Handles an event of one pod; None if it did not exist, or is gone."""
        if before is not None and _is_placed(before):
            pods = self._pods.get(before.node, {})
            pods.pop(before.uid, None)
            if not pods:
                self._pods.pop(before.node, None)
            self._touched.add(before.node)
        if after is not None and _is_placed(after):
            self._pods.setdefault(after.node, {})[after.uid] = after
            self._touched.add(after.node)


def _is_placed(pod: Pod) -> bool:
    return bool(pod.node) and pod.owner is not None and pod.owner.kind == DAEMONSET.kind


# The kinds of owners whose pods do not count as load; the owner of a static pod is its node.
_OF_NODE = (DAEMONSET.kind, "Node")


class BusyNodes:
    """Counts such pods by node, so that a query visits no pod."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._names: frozenset[str] | None = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The nodes with at least one such pod; the same object until that changes."""
        if self._names is None:
            self._names = frozenset(self._counts)
        return self._names

    def replace(self, pods: Iterable[Pod]) -> None:
        """Replaces all known pods."""
        self._counts = Counter(filter(None, map(_node_of, pods)))
        self._names = None

    def changed(self, before: Pod | None, after: Pod | None) -> None:
        """Handles an event of one pod; None if it did not exist, or is gone."""
        was, is_now = _node_of(before), _node_of(after)
        if was == is_now:
            return
        if is_now:
            self._counts[is_now] += 1
        if was:
            self._counts[was] -= 1
            if self._counts[was] <= 0:
                del self._counts[was]
        self._names = None


def _node_of(pod: Pod | None) -> str:
    """The node of a pod that counts as load; empty for other pods."""
    if pod is None or pod.ended or (pod.owner is not None and pod.owner.kind in _OF_NODE):
        return ""
    return pod.node


class GatedPods:
    """The pods with our scheduling gate."""

    def __init__(self) -> None:
        self._uids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._uids)

    def replace(self, pods: Iterable[Pod]) -> None:
        """Replaces all known pods."""
        self._uids = {pod.uid for pod in pods if pod.gated}

    def changed(self, pod: Pod, *, gone: bool = False) -> None:
        """Handles an event of one pod."""
        (self._uids.add if pod.gated and not gone else self._uids.discard)(pod.uid)


def first_bound(pods: Iterable[Pod], since: Mapping[str, float]) -> Mapping[str, str]:
    """By node, the first pod that was bound to it since a time and has not ended."""
    first: dict[str, tuple[float, str]] = {}
    for pod in pods:
        if pod.placed and pod.node in since and not pod.ended:
            place = pod.placed, f"{pod.namespace}/{pod.name}"
            if since[pod.node] <= pod.placed and first.get(pod.node, place) >= place:
                first[pod.node] = place
    return {node: name for node, (_, name) in first.items()}


T = TypeVar("T")


class Owned(Generic[T]):
    """The index. `uid_of` identifies an object; `scope_of` returns its controller's UID (empty for
    an orphan) and its namespace.
    """

    def __init__(
        self, uid_of: Callable[[T], str], scope_of: Callable[[T], tuple[str, str]]
    ) -> None:
        self._uid_of, self._scope_of = uid_of, scope_of
        self._all: dict[str, T] = {}
        self._scopes: dict[tuple[str, str], dict[str, T]] = {}

    def put(self, item: T) -> T | None:
        """Adds an object; returns its previous version."""
        uid, scope = self._uid_of(item), self._scope_of(item)
        before = self._all.get(uid)
        if before is not None and self._scope_of(before) != scope:
            self.drop(uid)
        self._all[uid] = item
        self._scopes.setdefault(scope, {})[uid] = item
        return before

    def get(self, uid: str) -> T | None:
        """The object with that UID."""
        return self._all.get(uid)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all.values())

    def drop(self, uid: str) -> T | None:
        """Removes an object; returns its last version."""
        before = self._all.pop(uid, None)
        if before is not None:
            scope = self._scope_of(before)
            del self._scopes[scope][uid]
            if not self._scopes[scope]:
                del self._scopes[scope]
        return before

    def replace(self, items: Iterable[T]) -> list[T]:
        """Replaces all objects; returns the removed ones. Of equal objects the former one is kept:
        a list of all pods while the former ones are known took their memory twice.
        """
        before, self._all, self._scopes = self._all, {}, {}
        for item in items:
            known = before.get(self._uid_of(item))
            self.put(known if known is not None and known == item else item)
        return [item for uid, item in before.items() if uid not in self._all]

    def candidates(self, owner: str, namespace: str) -> list[T]:
        """The objects that the owner controls, and the orphans of its namespace."""
        return [
            *self._scopes.get((owner, namespace), {}).values(),
            *self._scopes.get(("", namespace), {}).values(),
        ]


def scope_of_pod(pod: Pod) -> tuple[str, str]:
    """The UID of its controller, empty for an orphan, and its namespace."""
    return (pod.owner.uid if pod.owner is not None else ""), pod.namespace


def scope_of_revision(revision: Revision) -> tuple[str, str]:
    """The UID of its DaemonSet, also of a target revision's, and its namespace."""
    owner = revisions.owner_of(revision) or target_revisions.daemonset_of(revision)
    namespace = str((revision.raw.get("metadata") or {}).get("namespace") or "")
    return (owner.uid if owner else "", namespace)
