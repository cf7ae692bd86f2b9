"""One body in memory for each version of an object, since several watches of a service read the
same kinds; and one copy of the lists of owned fields, which are equal in most objects of a kind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import orjson

FIELD_SETS = 1024  # the maximum of shared sets; the least recently received ones are dropped


class _Held(dict[str, Any]):
    """A body with weak references."""

    __slots__ = ("__weakref__",)


class BodyCache:
    """The bodies that are still referenced, never mutated: a new version is another body."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, str, str], _Held] = WeakValueDictionary()
        self._field_set = lru_cache(FIELD_SETS)(orjson.loads)

    def intern(self, body: dict[str, Any]) -> dict[str, Any]:
        """The cached body of the same object, version and API version, or this one."""
        metadata = body.get("metadata")
        if (
            not isinstance(metadata, dict)
            or not (uid := metadata.get("uid"))
            or not (version := metadata.get("resourceVersion"))
        ):
            return body
        key = (str(body.get("apiVersion")), uid, version)
        held = self._held.get(key)
        if held is None:
            self._share_field_sets(metadata)
            held = self._held[key] = _Held(body)
        return held

    def _share_field_sets(self, metadata: dict[str, Any]) -> None:
        """Replaces each field set of managedFields, half of a DaemonSet's memory, by an equal one.

        https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
        """
        for entry in metadata.get("managedFields") or ():
            if fields := entry.get("fieldsV1"):
                entry["fieldsV1"] = self._field_set(orjson.dumps(fields))


class EqualBodies:
    """One body for each content, as long as it is referenced."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[bytes, _Held] = WeakValueDictionary()

    def intern(self, body: dict[str, Any]) -> dict[str, Any]:
        """The cached body with this content, or this one."""
        return self._held.setdefault(orjson.dumps(body), _Held(body))
