"""What changed between two trees of mappings, so that a journal says once what stays.

A difference is plain data: `put` holds new values, `drop` keys that are gone, `in` differences of
mappings below; what is empty is left out. Only mappings are looked into: any other value is put
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonTree = Mapping[str, Any]
TreeDelta = dict[str, Any]

_ABSENT = object()


def between(old: JsonTree, new: JsonTree) -> TreeDelta:
    """What makes `new` of `old`; empty when they are equal. Values that are the same object cost a
    glance.
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
    """As JSON: 1, 1.0 and true are three values."""
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
