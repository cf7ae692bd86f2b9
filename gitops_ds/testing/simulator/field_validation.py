"""Validates a body by its kind: unknown fields and values of the wrong type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitops_ds.core.objects import Body, Resource
from gitops_ds.testing.simulator import api_errors, field_sets
from gitops_ds.testing.simulator.field_sets import Schema
from gitops_ds.testing.simulator.type_schema import (
    ListOf,
    MapOf,
    Opaque,
    ScalarType,
    Struct,
    Structures,
    Type,
)

_EXPECTED: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "intOrString": (int, str),
    "quantity": (int, float, str),
}


def refuse_unfit(structures: Structures, resource: Resource, body: Body) -> None:
    """Raises Invalid, as a server-side apply does, for the first unknown field or value of another
    type.
    """
    metadata = body.get("metadata") or {}
    for fault in _faults(structures, structures.of(resource), body, ""):
        what = (
            f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {resource.api_version}, "
            f"Kind={resource.kind}"
        )
        raise api_errors.unfit(f"failed to create typed patch object ({what}): {fault}")


def _faults(structures: Structures, type: Type, value: Any, place: str) -> Iterator[str]:
    if value is None:
        return
    match type:
        case Opaque():
            return
        case ScalarType(name):
            expected = _EXPECTED[name]
            if not isinstance(value, expected) or (isinstance(value, bool) and name != "boolean"):
                yield f"{place}: {_type_fault(name, value)}"
        case ListOf():
            if not isinstance(value, (list, tuple)):
                yield f"{place}: expected list, got {_plain(value)}"
                return
            yield from _item_faults(type, value, place)
            for index, item in enumerate(value):
                yield from _faults(structures, type.element, item, place + _step(type, item, index))
        case MapOf():
            if not isinstance(value, Mapping):
                yield f"{place}: expected map, got {_plain(value)}"
                return
            for name, item in value.items():
                yield from _faults(structures, type.element, item, f"{place}.{name}")
        case Struct():
            yield from _struct_faults(structures, type, value, place)


def _struct_faults(structures: Structures, type: Struct, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place}: expected map, got {_plain(value)}"
        return
    fields = structures.fields(type)
    for name, item in value.items():
        if name not in fields:
            yield f"{place}.{name}: field not declared in schema"
        else:
            yield from _faults(structures, fields[name], item, f"{place}.{name}")


def _item_faults(type: ListOf, value: Sequence[Any], place: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(value if type.keys else ()):
        if not isinstance(item, Mapping):
            yield (
                f"{place}: element {index}: associative list with keys may not have non-map "
                "elements"
            )
        elif (step := _step(type, item, index)) in seen:
            yield f"{place}: duplicate entries for key {step}"
        else:
            seen.add(step)


def known_fields(
    structures: Structures, type: Struct, body: Body, old: Body | None = None
) -> dict[str, Any]:
    """A copy of the object without unknown fields, which the API server drops (with a warning) from
    other writes.

    A part that the body shares with the stored object `old` (the same Python object) has no unknown
    fields and never changes, so it is not copied.
    """
    fields, kept = structures.fields(type), old or {}
    copied: dict[str, Any] = {}
    for name, value in body.items():
        field, before = fields.get(name), kept.get(name)
        if field is None:
            continue
        if value is before and name in kept:
            copied[name] = value
        elif isinstance(field, Struct) and isinstance(value, dict) and isinstance(before, dict):
            copied[name] = known_fields(structures, field, value, before)
        else:
            copied[name] = known_only(structures, field, value)
    return copied


def known_only(structures: Structures, type: Type, value: Any) -> Any:
    """A copy of the value without unknown fields."""
    if isinstance(value, (str, int)):
        return value
    match type:
        case Struct() if isinstance(value, Mapping):
            fields = structures.fields(type)
            return {
                k: known_only(structures, fields[k], v) for k, v in value.items() if k in fields
            }
        case ListOf() if isinstance(value, (list, tuple)):
            return [known_only(structures, type.element, item) for item in value]
        case MapOf() if isinstance(value, Mapping):
            return {k: known_only(structures, type.element, v) for k, v in value.items()}
        case _:
            return Schema.copy(value)


def _step(type: ListOf, item: Any, index: int) -> str:
    try:
        (step,) = field_sets.items(type, [item]) if type.keys else (f"i:{index}",)
    except field_sets.KeyMissing:
        step = f"i:{index}"
    return f"[{index}]" if step.startswith("i:") else field_sets.show((step,))


def _type_fault(name: str, value: Any) -> str:
    """The message for a value of the wrong type, as in the API server."""
    match name:
        case "integer" | "number":
            return f"expected numeric (int or float), got {_go_type(value)}"
        case "boolean":
            return f"expected boolean, got {_plain(value)}"
        case _:
            return (
                f"expected string, got &value.valueUnstructured{{Value:{api_errors.text(value)}}}"
            )


def _go_type(value: Any) -> str:
    if isinstance(value, Mapping):
        return "map[string]interface {}"
    if isinstance(value, (list, tuple)):
        return "[]interface {}"
    return "string" if isinstance(value, str) else "bool"


def _plain(value: Any) -> str:
    return f"&{{{value if isinstance(value, str) else api_errors.text(value)}}}"
