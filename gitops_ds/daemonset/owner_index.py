"""Objects indexed by their controller's UID, and orphans by namespace: the candidates of one owner
without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

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
        """Replaces all objects; returns the removed ones."""
        before, self._all, self._scopes = self._all, {}, {}
        for item in items:
            self.put(item)
        return [item for uid, item in before.items() if uid not in self._all]

    def candidates(self, owner: str, namespace: str) -> list[T]:
        """The objects that the owner controls, and the orphans of its namespace."""
        return [
            *self._scopes.get((owner, namespace), {}).values(),
            *self._scopes.get(("", namespace), {}).values(),
        ]
