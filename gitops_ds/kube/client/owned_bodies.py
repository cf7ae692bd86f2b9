"""The objects whose bodies a service keeps whole: those in its states and those in Git. Of all
others it keeps the fields that decisions read, so that its memory does not follow from what others
write in the cluster.

Labels and annotations prove nothing: others copy them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import ClassVar

from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    Body,
    Key,
    Resource,
    group_of,
    key_of,
)


class OwnedBodies:
    """The keys of owned objects. Of the kinds `REDUCED` all objects of the cluster are watched."""

    REDUCED: ClassVar[Set[Resource]] = frozenset((DAEMONSET, CONTROLLER_REVISION))

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = set(keys)
        self._listeners: list[Callable[[Set[Key]], None]] = []

    def add(self, keys: Iterable[Key]) -> None:
        """Adds keys, before their objects are listed. Who has reduced bodies of them lists them
        again.
        """
        if new := set(keys) - self._keys:
            self._keys |= new
            for listener in self._listeners:
                listener(new)

    def listen(self, grown: Callable[[Set[Key]], None]) -> None:
        """Subscribes to added keys."""
        self._listeners.append(grown)

    def has(self, key: Key) -> bool:
        """Whether the object with a key is owned."""
        return key in self._keys

    def whole(self, body: Body) -> bool:
        """Whether the object is owned. A ControllerRevision belongs to its DaemonSet."""
        return any(key in self._keys for key in _keys(body))


def _keys(body: Body) -> Iterable[Key]:
    yield key_of(body)
    if (group_of(body), body.get("kind")) == (CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind):
        metadata = body.get("metadata") or {}
        for owner in metadata.get("ownerReferences") or ():
            namespace, name = str(metadata.get("namespace") or ""), str(owner.get("name") or "")
            yield Key(DAEMONSET.group, DAEMONSET.kind, namespace, name)
