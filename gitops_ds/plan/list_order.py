"""The order of containers and variables.

Ownership of fields does not show it, but init containers run in this order, and a variable refers
to earlier ones only: https://github.com/kubernetes/kubernetes/issues/108708
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gitops_ds.model.objects import Body

_ORDERED: Final = frozenset(("containers", "env", "initContainers"))


def ordered(live: Body, desired: Body) -> dict[str, Any]:
    """`live` with these lists in the order of `desired`. Members that are only in `live` keep
    their places.
    """
    return dict(_mapping(live, desired))


def differs(live: Body, desired: Body) -> bool:
    """Whether an apply changes the order of one of these lists."""
    return _mapping(live, desired) is not live


def _mapping(live: Mapping[str, Any], desired: Mapping[str, Any]) -> Mapping[str, Any]:
    changed = {}
    for key, value in live.items():
        wanted = desired.get(key)
        if isinstance(value, Mapping) and isinstance(wanted, Mapping):
            new: Any = _mapping(value, wanted)
        elif key in _ORDERED and isinstance(value, list) and isinstance(wanted, list):
            new = _list(value, wanted)
        else:
            continue
        if new is not value:
            changed[key] = new
    return {**live, **changed} if changed else live


def _list(live: list[Any], desired: list[Any]) -> list[Any]:
    mine, theirs = _by_name(desired), _by_name(live)
    if mine is None or theirs is None:
        return live
    common = iter([name for name in mine if name in theirs])
    names = [next(common) if name in mine else name for name in theirs]
    new = [_mapping(theirs[name], mine.get(name, {})) for name in names]
    return new if any(a is not b for a, b in zip(new, live, strict=True)) else live


def _by_name(items: list[Any]) -> dict[str, Mapping[str, Any]] | None:
    named = {
        item["name"]: item
        for item in items
        if isinstance(item, Mapping) and isinstance(item.get("name"), str)
    }
    return named if len(named) == len(items) else None
