"""Deletes objects without owners, and the objects of a terminating namespace.

https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.cluster import EventType
from gitops_ds.core.objects import NAMESPACE, Body, Resource
from gitops_ds.testing.simulator.registry_strategy import FOREGROUND, ORPHAN
from gitops_ds.testing.simulator.server import Server
from gitops_ds.testing.simulator.store import StoredChange

_Place = tuple[Resource, str, str]  # resource, namespace, name


class Garbage:
    """The garbage collector and the namespace controller. It must receive every change, in order;
    each call may write.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._alive: dict[str, _Place] = {}
        self._dependents: dict[str, set[_Place]] = {}
        self._owners: dict[_Place, frozenset[str]] = {}
        self._ending: set[str] = set()  # namespaces

    def saw(self, resource: Resource, change: StoredChange) -> None:
        """Handles one change of any kind."""
        metadata = change.body["metadata"]
        place = (resource, metadata.get("namespace", ""), metadata["name"])
        if change.type is EventType.DELETED:
            self._gone(place, change.body)
            return
        self._alive[metadata["uid"]] = place
        self._index(place, frozenset(ref["uid"] for ref in metadata.get("ownerReferences") or ()))
        if "deletionTimestamp" in metadata:
            self._end(place, change.body)
        elif (owners := self._owners.get(place)) and not any(uid in self._alive for uid in owners):
            self._delete(place, metadata["uid"])

    def _index(self, place: _Place, owners: frozenset[str]) -> None:
        for uid in self._owners.pop(place, frozenset()) - owners:
            self._dependents.get(uid, set()).discard(place)
        if owners:
            self._owners[place] = owners
            for uid in owners:
                self._dependents.setdefault(uid, set()).add(place)

    def _gone(self, place: _Place, body: Body) -> None:
        uid = body["metadata"]["uid"]
        self._alive.pop(uid, None)
        owners = self._owners.get(place, frozenset())
        self._index(place, frozenset())
        for owner in owners:
            if owner in self._alive:
                self._again(self._alive[owner])
        for dependent in _sorted(self._dependents.pop(uid, ())):
            left = self._owners[dependent] - {uid}
            if any(other in self._alive for other in left):
                self._disown(dependent, uid)
            elif (current := self._found(dependent)) is not None:
                self._delete(dependent, current["metadata"]["uid"])
        if place[1] in self._ending:
            self._empty(place[1])
        if place[0] == NAMESPACE:
            self._ending.discard(place[2])

    def _again(self, place: _Place) -> None:
        body = self._found(place)
        if body is not None and "deletionTimestamp" in body["metadata"]:
            self._end(place, body)

    def _end(self, place: _Place, body: Body) -> None:
        finalizers = body["metadata"].get("finalizers") or ()
        dependents = _sorted(self._dependents.get(body["metadata"]["uid"], ()))
        if place[0] == NAMESPACE and place[2] not in self._ending:
            self._ending.add(place[2])
            self._empty(place[2])
        elif ORPHAN in finalizers:
            for dependent in dependents:
                self._disown(dependent, body["metadata"]["uid"])
            self._without(place, body, ORPHAN)
        elif FOREGROUND in finalizers:
            waiting = False
            for dependent in dependents:
                current = self._found(dependent)
                if current is None:
                    continue
                waiting = waiting or _blocks(current, body["metadata"]["uid"])
                if "deletionTimestamp" not in current["metadata"]:
                    self._delete(dependent, current["metadata"]["uid"])
            if not waiting:
                self._without(place, body, FOREGROUND)

    def _empty(self, namespace: str) -> None:
        """Deletes the remaining content of the namespace, and finally the namespace."""
        left = [
            (resource, body)
            for resource in self._server.structures.served.values()
            if resource.namespaced
            for body in self._server.store.all(resource)
            if body["metadata"]["namespace"] == namespace
        ]
        for resource, body in left:
            if "deletionTimestamp" not in body["metadata"]:
                self._delete(
                    (resource, namespace, body["metadata"]["name"]), body["metadata"]["uid"]
                )
        if not left and (current := self._server.store.get(NAMESPACE, "", namespace)) is not None:
            self._server.finalize(current)

    def _found(self, place: _Place) -> Body | None:
        return self._server.store.get(*place)

    def _delete(self, place: _Place, uid: str) -> None:
        body = self._found(place)
        if body is not None and body["metadata"]["uid"] == uid:
            try:
                self._server.delete(*place)
            except errors.ClusterError:
                return  # deleted meanwhile, or its kind is

    def _disown(self, place: _Place, uid: str) -> None:
        body = self._found(place)
        if body is not None:
            left = [
                ref for ref in body["metadata"].get("ownerReferences") or () if ref["uid"] != uid
            ]
            self._server.put(
                place[0], body, metadata=_with(body["metadata"], "ownerReferences", left)
            )

    def _without(self, place: _Place, body: Body, finalizer: str) -> None:
        left = [name for name in body["metadata"]["finalizers"] if name != finalizer]
        self._server.put(place[0], body, metadata=_with(body["metadata"], "finalizers", left))


def _sorted(places: Iterable[_Place]) -> list[_Place]:
    return sorted(places)


def _with(metadata: Mapping[str, Any], field: str, value: list[Any]) -> dict[str, Any]:
    kept = {k: v for k, v in metadata.items() if k != field}
    return {**kept, field: value} if value else kept


def _blocks(body: Body, owner: str) -> bool:
    return any(
        ref["uid"] == owner and ref.get("blockOwnerDeletion")
        for ref in body["metadata"].get("ownerReferences") or ()
    )
