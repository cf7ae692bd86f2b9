"""One body in memory for each version of an object: several watches of a service read the same
kinds.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary


class _Held(dict[str, Any]):
    """A body with weak references."""

    __slots__ = ("__weakref__",)


class BodyCache:
    """The bodies that are still referenced, never mutated: a new version is another body."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, str, str], _Held] = WeakValueDictionary()

    def intern(self, body: dict[str, Any]) -> dict[str, Any]:
        """The cached body of the same object, version and API version, or this one."""
        metadata = body.get("metadata")
        if (
            not isinstance(metadata, dict)
            or not (uid := metadata.get("uid"))
            or not (version := metadata.get("resourceVersion"))
        ):
            return body
        return self._held.setdefault((str(body.get("apiVersion")), uid, version), _Held(body))
