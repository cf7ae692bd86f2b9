"""One body for each version of an object, however many read it: the watches of a service look at
the same kinds.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary


class _Held(dict[str, Any]):
    """A body that may be held weakly."""

    __slots__ = ("__weakref__",)


class BodyCache:
    """The bodies that somebody still holds. They are never changed: a new version is another body."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, str, str], _Held] = WeakValueDictionary()

    def kept(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body that is held already for this version of the object, in this version of its
        kind; or else this one.
        """
        metadata = body.get("metadata")
        if (
            not isinstance(metadata, dict)
            or not (uid := metadata.get("uid"))
            or not (version := metadata.get("resourceVersion"))
        ):
            return body
        return self._held.setdefault((str(body.get("apiVersion")), uid, version), _Held(body))
