"""The objects with one increasing resourceVersion, and their recent changes."""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gitops_ds.core.cluster import EventType
from gitops_ds.core.objects import Body, Resource
from gitops_ds.testing.simulator import api_errors

Name = tuple[str, str]  # namespace, name


class StoredChange(msgspec.Struct, frozen=True):
    """A change of an object: `body` is the new one (the last one after a deletion), `before` the
    previous one.
    """

    version: int
    type: EventType
    body: Body
    before: Body | None


@dataclass(slots=True)
class _Table:
    """One kind: its objects, its latest changes (numbered continuously, including dropped ones),
    and the waiters for the next one.
    """

    objects: dict[Name, Body] = field(default_factory=dict)
    changes: list[StoredChange] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    forgotten: int = 0
    forgotten_version: int = 0
    # ordered, so that all runs are equal
    waiting: dict[asyncio.Event, None] = field(default_factory=dict)


class Backup(msgspec.Struct, frozen=True):
    """The objects of each (group, kind) at a version."""

    version: int
    objects: dict[tuple[str, str], dict[Name, Body]]


class ObjectStore:
    """The store and its callers must not change bodies that they passed or received.

    `listener` is called on every change; it must not write. `history` is the number of stored
    changes per kind; a watch from before them gets 410 Expired.
    """

    def __init__(self, history: int) -> None:
        self.version = 0
        self._history = history
        self.listener: Callable[[Resource, StoredChange], None] = lambda resource, change: None
        self._tables: defaultdict[tuple[str, str], _Table] = defaultdict(_Table)

    def _table(self, resource: Resource) -> _Table:
        return self._tables[resource.group, resource.kind]

    def get(self, resource: Resource, namespace: str, name: str) -> Body | None:
        """The object, or None."""
        return self._table(resource).objects.get((namespace, name))

    def all(self, resource: Resource) -> list[Body]:
        """The objects of a kind, sorted by namespace and name."""
        objects = self._table(resource).objects
        return [objects[key] for key in sorted(objects)]

    def put(self, resource: Resource, body: dict[str, Any]) -> Body:
        """Stores the object with the next version."""
        metadata = body["metadata"]
        name = (metadata.get("namespace", ""), metadata["name"])
        table = self._table(resource)
        before = table.objects.get(name)
        stored = self._stamped(body)
        table.objects[name] = stored
        self._publish(
            resource,
            StoredChange(
                self.version, EventType.MODIFIED if before else EventType.ADDED, stored, before
            ),
        )
        return stored

    def remove(self, resource: Resource, body: Body) -> Body:
        """Removes the object; the result has the version of its deletion."""
        metadata = body["metadata"]
        table = self._table(resource)
        before = table.objects.pop((metadata.get("namespace", ""), metadata["name"]))
        last = self._stamped(body)
        self._publish(resource, StoredChange(self.version, EventType.DELETED, last, before))
        return last

    def _stamped(self, body: Body) -> dict[str, Any]:
        self.version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    def _publish(self, resource: Resource, change: StoredChange) -> None:
        table = self._table(resource)
        table.changes.append(change)
        table.versions.append(self.version)
        if len(table.changes) > 2 * self._history:
            self._forget(table, len(table.changes) - self._history)
        for event in table.waiting:
            event.set()
        self.listener(resource, change)

    def _forget(self, table: _Table, number: int) -> None:
        if number > 0:
            table.forgotten += number
            table.forgotten_version = table.versions[number - 1]
            del table.changes[:number], table.versions[:number]

    def begin(self, resource: Resource) -> None:
        """Adds a served kind: a watch from an earlier version is Expired."""
        self._table(resource).forgotten_version = self.version

    def compact(self) -> None:
        """Drops all changes so far, like etcd's compaction: every watch from an earlier version is
        Expired.
        """
        for table in self._tables.values():
            self._forget(table, len(table.changes))
            table.forgotten_version = self.version

    def backup(self) -> Backup:
        """All present objects."""
        return Backup(
            self.version, {kind: dict(table.objects) for kind, table in self._tables.items()}
        )

    def restore(self, backup: Backup, resources: Callable[[tuple[str, str]], Resource]) -> None:
        """Restores the objects and the version, like a restored etcd: watches get no event, and the
        history is lost.
        """
        self.version = backup.version
        for kind, table in self._tables.items():
            before, table.objects = table.objects, dict(backup.objects.get(kind, {}))
            table.changes, table.versions, table.forgotten, table.forgotten_version = (
                [],
                [],
                0,
                backup.version,
            )
            for name in sorted(before.keys() | table.objects.keys()):
                was, now = before.get(name), table.objects.get(name)
                if was is not now:
                    type = (
                        EventType.DELETED
                        if now is None
                        else EventType.ADDED
                        if was is None
                        else EventType.MODIFIED
                    )
                    self.listener(
                        resources(kind), StoredChange(self.version, type, now or was or {}, was)
                    )

    @contextlib.contextmanager
    def changes(
        self, resource: Resource, since: int, wake: asyncio.Event
    ) -> Iterator[Callable[[], StoredChange | None]]:
        """A function that returns the next change after the version `since`, or None if there is no
        change yet; `wake` is set with the next one.

        It and the function raise Expired for a version that is too old.
        """
        table = self._table(resource)
        if since < table.forgotten_version:
            raise api_errors.expired(since, table.forgotten_version)
        at = table.forgotten + bisect_right(table.versions, since)

        def following() -> StoredChange | None:
            nonlocal at
            if at < table.forgotten:
                raise api_errors.expired(since, table.forgotten_version)
            while at - table.forgotten < len(table.changes):
                change = table.changes[at - table.forgotten]
                at += 1
                if change.version > since:
                    return change
            return None

        table.waiting[wake] = None
        try:
            yield following
        finally:
            table.waiting.pop(wake)
