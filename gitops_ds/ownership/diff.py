"""The fields that differ between two forms of an object, and the order of its containers and
variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.core import names
from gitops_ds.core.change import FieldChange
from gitops_ds.core.objects import Body, ListMember, Path

# The key that identifies the members of a list: the first that all members have and that is unique
# among them.
MEMBER_KEYS = (
    "name",
    "mountPath",
    "containerPort",
    "devicePath",
    "topologyKey",
    "port",
    "key",
    "ip",
    "uid",
)

# Set by the server, or changed by every write: ignored in a diff.
_SERVER_METADATA = frozenset(
    (
        "managedFields",
        "resourceVersion",
        "generation",
        "uid",
        "creationTimestamp",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
)


def compare(old: Body, new: Body) -> tuple[FieldChange, ...]:
    """The fields that differ, in order of their path, without status and fields that only the
    server writes.
    """
    return tuple(_differences(_meant(old), _meant(new), ()))


def _meant(body: Body) -> dict[str, Any]:
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k not in _SERVER_METADATA}
    annotations = {
        k: v
        for k, v in (metadata.get("annotations") or {}).items()
        if k != names.TEMPLATE_GENERATION
    }
    for key, value in (("annotations", annotations), ("labels", metadata.get("labels"))):
        if value:
            metadata[key] = value
        else:
            metadata.pop(key, None)
    return {
        **{k: v for k, v in body.items() if k not in ("status", "apiVersion", "kind")},
        "metadata": metadata,
    }


def _differences(old: Any, new: Any, path: Path) -> Iterator[FieldChange]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        yield from _list_differences(old, new, path)
    else:
        yield FieldChange(path, old, new)


def _list_differences(old: list[Any], new: list[Any], path: Path) -> Iterator[FieldChange]:
    key = _member_key(old, new)
    if key is None:
        if len(old) != len(new) or not all(isinstance(item, Mapping) for item in old + new):
            yield FieldChange(path, old, new)
            return
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, (*path, index))
        return
    before, after = ({str(item[key]): item for item in items} for items in (old, new))
    for name in sorted(before.keys() | after.keys()):
        yield from _differences(before.get(name), after.get(name), (*path, ListMember(name)))
    if list(before) != list(after) and sorted(before) == sorted(after):
        yield FieldChange((*path, ListMember("order")), list(before), list(after))


def _member_key(old: list[Any], new: list[Any]) -> str | None:
    if not all(isinstance(item, Mapping) for item in old + new):
        return None
    for key in MEMBER_KEYS:
        if all(_unique(items, key) for items in (old, new)):
            return key
    return None


def _unique(items: list[Mapping[str, Any]], key: str) -> bool:
    values = [item.get(key) for item in items]
    return None not in values and len(set(map(str, values))) == len(values)


# Ownership of fields does not show the order of these lists, but init containers run in it, and a
# variable refers to earlier ones only: https://github.com/kubernetes/kubernetes/issues/108708
_ORDERED: Final = frozenset(("containers", "env", "initContainers"))


def in_order(live: Body, desired: Body) -> dict[str, Any]:
    """`live` with these lists in the order of `desired`. Members that are only in `live` keep
    their places.
    """
    return dict(_mapping(live, desired))


def order_differs(live: Body, desired: Body) -> bool:
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
