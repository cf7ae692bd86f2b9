"""Sets of fields: those of an object, the difference of two objects, and their merge.

A path is a tuple of steps in the form of managedFields: `f:name` a field or key, `k:{...}` a list
item by its keys, `v:...` an item of a set. The rules are those of server-side apply:
https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec
import orjson

from gitops_ds.testing.simulator import type_schema
from gitops_ds.testing.simulator.type_schema import (
    ListOf,
    MapOf,
    Opaque,
    ScalarType,
    Struct,
    Structures,
    Type,
)

FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]
NONE: FieldSet = frozenset()


class KeyMissing(ValueError):
    """An item of a keyed list has none of its keys, or two items have the same."""


class FieldDifference(msgspec.Struct, frozen=True):
    """The fields only of the new object, only of the old one, or of both with different values."""

    added: FieldSet
    removed: FieldSet
    modified: FieldSet


@functools.lru_cache(maxsize=4096)
def encode(fields: FieldSet) -> Mapping[str, Any]:
    """The `fieldsV1` of managedFields; equal sets may share one, which is never changed."""
    root: dict[str, Any] = {}
    inner = {path[:n] for path in fields for n in range(1, len(path))}
    for path in sorted(fields):
        place = root
        for step in path:
            place = place.setdefault(step, {})
        if path in inner:
            place["."] = {}
    return root


def decode(encoded: Mapping[str, Any]) -> FieldSet:
    """The paths of a `fieldsV1`."""
    return _decoded(orjson.dumps(encoded))


@functools.lru_cache(maxsize=4096)
def _decoded(encoded: bytes) -> FieldSet:
    paths: list[FieldPath] = []

    def walk(value: Mapping[str, Any], path: FieldPath) -> None:
        for step, below in value.items():
            if step == ".":
                paths.append(path)
            elif below:
                walk(below, (*path, step))
            else:
                paths.append((*path, step))

    walk(orjson.loads(encoded), ())
    return frozenset(paths)


def show(path: FieldPath) -> str:
    """A path as in the API server's messages: `.spec.template.spec.containers[name="c"].image`."""
    shown = ""
    for step in path:
        tag, _, rest = step.partition(":")
        if tag == "f":
            shown += f".{rest}"
        elif tag == "k":
            shown += f"[{','.join(f'{k}={json.dumps(v)}' for k, v in json.loads(rest).items())}]"
        else:
            shown += f"[={rest}]"
    return shown


class Schema:
    """The operations, over one table of structures."""

    def __init__(self, structures: Structures) -> None:
        self._structures = structures

    def of(self, type: Type, value: Any) -> FieldSet:
        """The fields of a configuration, as an applier owns them."""
        paths: set[FieldPath] = set()
        self._collect(type, value, (), paths)
        return frozenset(paths)

    @staticmethod
    def copy(value: Any) -> Any:
        """A copy as JSON, so that callers share no objects."""
        if isinstance(value, (str, int)):
            return value
        if isinstance(value, Mapping):
            return {key: Schema.copy(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [Schema.copy(item) for item in value]
        return value

    def _collect(self, type: Type, value: Any, path: FieldPath, paths: set[FieldPath]) -> None:
        if _is_leaf(type, value):
            paths.add(path)
        elif isinstance(type, ListOf):
            for step, item in items(type, value).items():
                self._collect(type.element, item, (*path, step), paths)
                paths.add((*path, step))
        elif isinstance(value, Mapping):
            for name, below in value.items():
                child = (*path, f"f:{name}")
                self._collect(self.child(type, name), below, child, paths)
                if below is None or below == {} or not isinstance(type, Struct):
                    paths.add(child)

    def child(self, type: Type, name: str) -> Type:
        """The type of a field or key below a struct or map."""
        if isinstance(type, Struct):
            return self._structures.fields(type).get(name, type_schema.FREE)
        return type.element if isinstance(type, MapOf) else type_schema.FREE

    def compare(self, type: Type, old: Any, new: Any) -> FieldDifference:
        """The difference from `old` to `new`."""
        added: set[FieldPath] = set()
        removed: set[FieldPath] = set()
        modified: set[FieldPath] = set()

        def leaf(before: Any, after: Any, path: FieldPath) -> None:
            (added if before is None else removed if after is None else modified).add(path)

        def walk(type: Type, before: Any, after: Any, path: FieldPath) -> None:
            if before is after or (before is not None and before == after):
                return
            if (
                not before
                and not after
                and (isinstance(before, (Mapping, list)) or isinstance(after, (Mapping, list)))
            ):
                if before is None or after is None:
                    leaf(before, after, path)
                return
            present = after if after is not None else before
            if _is_leaf(type, present) or (
                before is not None and after is not None and _shape(before) != _shape(after)
            ):
                leaf(before, after, path)
                return
            for step, below, first, second in self._differing(type, before, after):
                walk(below, first, second, (*path, step))
            if path and (before is None or after is None):
                leaf(before, after, path)

        walk(type, old, new, ())
        return FieldDifference(frozenset(added), frozenset(removed), frozenset(modified))

    def _differing(
        self, type: Type, before: Any, after: Any
    ) -> Iterable[tuple[str, Type, Any, Any]]:
        """The items or fields of two values, without those that they share."""
        element = type.element if isinstance(type, ListOf) else None
        old = items(type, before or []) if isinstance(type, ListOf) else before or {}
        new = items(type, after or []) if isinstance(type, ListOf) else after or {}
        for name in {**old, **new}:
            first, second = old.get(name), new.get(name)
            if first is second:
                continue
            if element is not None:
                yield name, element, first, second
            else:
                yield f"f:{name}", self.child(type, name), first, second

    def merge(self, type: Type, live: Any, config: Any) -> Any:
        """`config` merged into `live`: its fields take precedence, others are kept."""
        if (
            config is None
            or live is None
            or _is_leaf(type, config)
            or _shape(live) != _shape(config)
        ):
            return config
        if isinstance(type, ListOf):
            return self._merge_items(type, live, config)
        merged = dict(live)
        for name, value in config.items():
            merged[name] = self.merge(self.child(type, name), live.get(name), value)
        return merged

    def _merge_items(self, type: ListOf, live: Sequence[Any], config: Sequence[Any]) -> list[Any]:
        """The applier's order of its own items; items of others stay between their neighbours."""
        left, right = items(type, live), items(type, config)
        order, shared = list(left), [step for step in right if step in left]
        merged: dict[str, Any] = {}
        order_of_right = list(right)
        while order or order_of_right:
            if (
                order
                and order_of_right
                and order[0] != order_of_right[0]
                and order[0] in right
                and shared
                and shared[0] != order[0]
            ):
                order.pop(0)
                continue
            if order and order[0] not in right:
                step = order.pop(0)
                merged[step] = left[step]
                continue
            if order and order[0] in merged:
                order.pop(0)
                continue
            step = order_of_right.pop(0)
            merged[step] = (
                self.merge(type.element, left[step], right[step]) if step in left else right[step]
            )
            if shared and shared[0] == step:
                shared.pop(0)
        return list(merged.values())

    def without(self, type: Type, value: Any, gone: FieldSet) -> Any:
        """`value` without these fields and everything below them; a map or list that becomes empty
        is removed too (None).
        """
        by_step: dict[str, set[FieldPath]] = {}
        for path in gone:
            by_step.setdefault(path[0], set()).add(path[1:])
        kept: Any
        if isinstance(type, ListOf):
            kept = []
            for step, item in items(type, value).items():
                below = by_step.get(step, set())
                if () not in below:
                    kept.append(
                        self.without(type.element, item, frozenset(below)) if below else item
                    )
            kept = [item for item in kept if item is not None]
        else:
            kept = {}
            for name, item in value.items():
                below = by_step.get(f"f:{name}", set())
                if () in below:
                    continue
                left = (
                    self.without(self.child(type, name), item, frozenset(below))
                    if below and item
                    else item
                )
                if left is not None or item is None:
                    kept[name] = left
        return kept or None

    def with_parents(self, type: Type, fields: FieldSet) -> FieldSet:
        """The set with the fields of structs above its members."""
        paths = set(fields)
        for path in fields:
            here: Type = type
            for n, step in enumerate(path):
                if isinstance(here, Struct) and n + 1 < len(path):
                    paths.add(path[: n + 1])
                here = here.element if isinstance(here, ListOf) else self.child(here, step[2:])
        return frozenset(paths)


def items(type: ListOf, value: Iterable[Any]) -> dict[str, Any]:
    """The items of a set or keyed list by their step; the first of two equal ones counts. Raises
    KeyMissing.
    """
    by_key: dict[str, Any] = {}
    for item in value:
        by_key.setdefault(_step(type, item), item)
    return by_key


def _step(type: ListOf, item: Any) -> str:
    if not type.keys:
        return "v:" + json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    if not isinstance(item, Mapping):
        raise KeyMissing(f"expected an object with the key {type.keys[0]!r}")
    keys = {}
    for key in sorted(type.keys):
        value = item.get(key, type_schema.KEY_DEFAULTS.get(key))
        if value is not None:
            keys[key] = value
    if not any(key in item for key in type.keys):
        names = ", ".join(f'"{key}"' for key in type.keys)
        raise KeyMissing(f"associative list with keys has an element that omits key field {names}")
    return "k:" + json.dumps(keys, separators=(",", ":"), ensure_ascii=False)


def _shape(value: Any) -> str:
    return "map" if _is_map(value) else "list" if isinstance(value, (list, tuple)) else "scalar"


def _is_map(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _is_leaf(type: Type, value: Any) -> bool:
    """Whether a value is owned as a whole."""
    match type:
        case ScalarType():
            return True
        case Opaque():
            return type.atomic or not _is_map(value)
        case ListOf():
            return not (type.keys or type.is_set) or not isinstance(value, (list, tuple))
        case MapOf() | Struct():
            return type.atomic or not _is_map(value)
