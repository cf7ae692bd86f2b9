"""The objects of one informer, with the state of its watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from gitops_ds.core.cluster import EventType, Listing, WatchEvent
from gitops_ds.core.errors import ClusterUnreachable, ServerFault
from gitops_ds.core.objects import Body, Key, key_of, version_number
from gitops_ds.kube.client.informer import Failing, InformerEvent, WorldVersion

V = TypeVar("V")
Listener = Callable[[tuple[WatchEvent, ...]], None]


class InformerStore(Generic[V]):
    """The objects of one informer: `handle` is for its one writer, everything else for readers.

    `parse` converts a body to the value that is stored. The listener receives the changes, those
    that a new list reveals as well: an object that is missing from it is DELETED, in its last form
    if bodies are stored.

    `level` is set while the store matches the cluster: the API server answers, and the watch has
    returned every write that is expected (`expect`).
    """

    def __init__(self, parse: Callable[[Body], V], listener: Listener | None = None) -> None:
        self._parse, self._listener = parse, listener
        self._objects: dict[Key, V] = {}
        self._versions: dict[Key, str] = {}
        self.version = ""
        self._expected: dict[Key, int] = {}
        self.synced, self.level, self._tried = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.failing: Failing | None = None
        self.level.set()

    @property
    def objects(self) -> Mapping[Key, V]:
        """The objects by key; a view, not a copy."""
        return MappingProxyType(self._objects)

    async def listed(self) -> None:
        """Waits for the first list. Raises its ClusterError as long as no list succeeded."""
        await self._tried.wait()
        if self.failing is not None and not self.synced.is_set():
            raise self.failing.error

    def handle(self, event: InformerEvent) -> None:
        """Updates the objects by an event of the informer."""
        self._tried.set()
        changes: tuple[WatchEvent, ...] = ()
        match event:
            case Failing():
                self.failing = event
            case WorldVersion():
                self.failing = None
            case Listing(version=version):
                changes = self._replace(event)
                self.version, self.failing = version, None
                self.synced.set()
            case WatchEvent(version=version):
                changes = self._apply(event)
                self.version, self.failing = version, None
        self._update_level()
        if changes and self._listener is not None:
            self._listener(changes)

    @property
    def away(self) -> bool:
        """Whether the API server does not respond; other errors of one kind block no reader."""
        return self.failing is not None and isinstance(
            self.failing.error, ClusterUnreachable | ServerFault
        )

    def expect(self, key: Key, version: str) -> None:
        """Waits for the watch to return an object that was just written, with its version; "" for
        a deletion.
        """
        if (
            key in self._objects
            if version == ""
            else version_number(self._versions.get(key, "")) < version_number(version)
        ):
            self._expected[key] = version_number(version)
            self._update_level()

    def expect_nothing(self) -> None:
        """Drops every expected write."""
        self._expected = {}
        self._update_level()

    def _update_level(self) -> None:
        if self._expected or self.away:
            self.level.clear()
        else:
            self.level.set()

    def _apply(self, event: WatchEvent) -> tuple[WatchEvent, ...]:
        if event.type is EventType.BOOKMARK:
            return ()
        key = key_of(event.object)
        ending = "deletionTimestamp" in (event.object.get("metadata") or {})
        if (expected := self._expected.get(key)) is not None and (
            event.type is EventType.DELETED
            or ending
            or 0 < expected <= version_number(event.version)
        ):
            del self._expected[key]
        if event.type is EventType.DELETED:
            self._objects.pop(key, None)
            self._versions.pop(key, None)
        else:
            self._objects[key] = self._parse(event.object)
            self._versions[key] = event.version
        return (event,)

    def _replace(self, listing: Listing) -> tuple[WatchEvent, ...]:
        objects, versions, changes = dict[Key, V](), dict[Key, str](), list[WatchEvent]()
        for body in listing.items:
            key, version = (
                key_of(body),
                str((body.get("metadata") or {}).get("resourceVersion") or ""),
            )
            if key in self._objects and self._versions[key] == version:
                objects[key] = self._objects[key]
            else:
                type = EventType.MODIFIED if key in self._objects else EventType.ADDED
                objects[key] = self._parse(body)
                changes.append(WatchEvent(type, body, version))
            versions[key] = version
        gone = self._objects.keys() - objects.keys()
        changes += [
            WatchEvent(EventType.DELETED, self._last(key), listing.version) for key in sorted(gone)
        ]
        self._objects, self._versions, self._expected = objects, versions, {}
        return tuple(changes)

    def _last(self, key: Key) -> Body:
        """The object's last body, or only its name if bodies are not stored."""
        kept = self._objects[key]
        if isinstance(kept, Mapping):
            return cast("Body", kept)
        return {
            "apiVersion": f"{key.group}/v1" if key.group else "v1",
            "kind": key.kind,
            "metadata": _names(key),
        }


def _names(key: Key) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name} if key.namespace else {"name": key.name}
