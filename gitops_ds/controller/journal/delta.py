"""The difference between two trees of mappings, so that a journal contains unchanged values once.

A difference is plain data: `put` has new values, `drop` removed keys, `in` differences of nested
mappings; empty parts are omitted. Only mappings are compared by key: other values are put as a
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonTree = Mapping[str, Any]
TreeDelta = dict[str, Any]

_ABSENT = object()


def between(old: JsonTree, new: JsonTree) -> TreeDelta:
    """The difference from `old` to `new`; empty if they are equal. Identical objects are not
    compared.
    """
    if old is new:
        return {}
    put, below = {}, {}
    for key, value in new.items():
        was = old.get(key, _ABSENT)
        if was is value:
            continue
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            if change := between(was, value):
                below[key] = change
        elif not _same(was, value):
            put[key] = value
    drop = sorted(old.keys() - new.keys()) if len(old) + len(put) != len(new) else []
    return {word: part for word, part in (("put", put), ("drop", drop), ("in", below)) if part}


def _same(one: Any, other: Any) -> bool:
    """Equality in JSON: 1, 1.0 and true are different values."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            _same(value, other[key]) for key, value in one.items()
        )
    return type(one) is type(other) and bool(one == other)


def applied(old: JsonTree, change: TreeDelta) -> dict[str, Any]:
    """The new tree; `old` is unchanged. Raises KeyError if the difference is not one of `old`."""
    new = dict(old)
    for key in change.get("drop", ()):
        del new[key]
    new.update(change.get("put", {}))
    for key, below in change.get("in", {}).items():
        new[key] = applied(old[key], below)
    return new
