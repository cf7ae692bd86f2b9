"""The free capacity of every node for one more pod, used only if the controller places pods
(`scheduling: direct`).

The pods of all owners count until they have ended; a pod that is being deleted counts until it is
gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import Decision, FreeCapacity
from gitops_ds.core.objects import NODE, POD, Body, Key, Resource, version_number
from gitops_ds.kube.apimachinery import capacity
from gitops_ds.kube.apimachinery.capacity import Amounts, Port

_ENDED = frozenset(("Failed", "Succeeded"))


class _Taken(msgspec.Struct, frozen=True):
    node: str
    amounts: Amounts
    ports: tuple[Port, ...]


class NodeCapacity:
    """The free capacity by the watches of pods and nodes and by own new pods. It returns the
    DaemonSets that need a reconciliation.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Amounts] = {}
        self._pods: dict[str, _Taken] = {}
        self._by_node: dict[str, dict[str, _Taken]] = {}
        self._rooms: dict[str, FreeCapacity] = {}
        self._passed = 0
        self._waiting: set[Key] = set()

    def free_capacity(self) -> Mapping[str, FreeCapacity]:
        """The free capacity of each node, by name."""
        for node in self._nodes.keys() - self._rooms.keys():
            self._rooms[node] = self._room(node)
        return dict(self._rooms)

    def replace(self, resource: Resource, items: Iterable[Body], version: str) -> set[Key]:
        """Replaces all known objects of a kind by a list; returns the DaemonSets that wait for
        capacity.
        """
        if resource == NODE:
            self._nodes = {_name(body): capacity.allocatable(body) for body in items}
        elif resource == POD:
            self._passed = version_number(version)
            self._pods, self._by_node = {}, {}
            for body in items:
                self._put(body)
        self._rooms = {}
        return set(self._waiting)

    def apply(self, resource: Resource, type: EventType, body: Body, version: str) -> set[Key]:
        """Handles an event; returns the DaemonSets that wait for capacity if it may have
        increased.
        """
        if type is EventType.BOOKMARK:
            return set()
        if resource == NODE:
            return self._node(body, gone=type is EventType.DELETED)
        if resource == POD:
            self._passed = max(self._passed, version_number(version))
            if type is EventType.DELETED or (body.get("status") or {}).get("phase") in _ENDED:
                return set(self._waiting) if self._drop(_uid(body)) else set()
            self._put(body)
        return set()

    def wrote(self, pod: Body) -> None:
        """Adds the reply to the creation of a pod, unless its watch has shown a later version."""
        if (
            version_number(str((pod.get("metadata") or {}).get("resourceVersion") or ""))
            > self._passed
        ):
            self._put(pod)

    def remember(self, key: Key, decision: Decision) -> None:
        """Records whether that DaemonSet waits for capacity."""
        if decision.unplaced:
            self._waiting.add(key)
        else:
            self._waiting.discard(key)

    def _node(self, body: Body, *, gone: bool) -> set[Key]:
        name, now = _name(body), capacity.allocatable(body)
        if not gone and self._nodes.get(name) == now:
            return set()
        self._rooms.pop(name, None)
        if gone:
            self._nodes.pop(name, None)
            return set()
        self._nodes[name] = now
        return set(self._waiting)

    def _put(self, body: Body) -> None:
        spec, uid = body.get("spec") or {}, _uid(body)
        node = spec.get("nodeName")
        if not node or uid in self._pods or (body.get("status") or {}).get("phase") in _ENDED:
            return
        taken = _Taken(node, capacity.requested(spec), tuple(capacity.host_ports(spec)))
        self._pods[uid] = self._by_node.setdefault(node, {})[uid] = taken
        self._rooms.pop(node, None)

    def _drop(self, uid: str) -> bool:
        taken = self._pods.pop(uid, None)
        if taken is None:
            return False
        del self._by_node[taken.node][uid]
        self._rooms.pop(taken.node, None)
        return True

    def _room(self, node: str) -> FreeCapacity:
        there = self._by_node.get(node, {}).values()
        free = dict(self._nodes[node])
        for taken in there:
            for resource, amount in taken.amounts.items():
                if resource in free:
                    free[resource] -= amount
        return FreeCapacity(free, tuple(port for taken in there for port in taken.ports))


def _uid(body: Body) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")


def _name(body: Body) -> str:
    return str((body.get("metadata") or {}).get("name") or "")
