"""Whether a body has the shape of its kind: unknown fields and values of the wrong type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gitops_ds.cluster.simulated import answers, fields
from gitops_ds.cluster.simulated.fields import Schema
from gitops_ds.cluster.simulated.structure import ListOf, MapOf, Opaque, Scalar, Struct, Structures, Type
from gitops_ds.model.objects import Body, Resource

_EXPECTED: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "intOrString": (int, str),
    "quantity": (int, float, str),
}
_SHOWN = {"integer": "numeric (int or float)", "number": "numeric (int or float)", "boolean": "boolean"}


def refuse_unfit(structures: Structures, resource: Resource, body: Body) -> None:
    """Raises Invalid as a server-side apply does, at the first field that the kind doesn't have or that has another type."""
    metadata = body.get("metadata") or {}
    for fault in _faults(structures, structures.of(resource), body, ""):
        what = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {resource.api_version}, Kind={resource.kind}"
        raise answers.unfit(f"failed to create typed patch object ({what}): {fault}")


def _faults(structures: Structures, type: Type, value: Any, place: str) -> Iterator[str]:
    if value is None:
        return
    match type:
        case Opaque():
            return
        case Scalar(name):
            wanted = _EXPECTED[name]
            if not isinstance(value, wanted) or (isinstance(value, bool) and name != "boolean"):
                yield f"{place}: expected {_SHOWN.get(name, 'string')}, got {_got(value)}"
        case ListOf():
            if not isinstance(value, (list, tuple)):
                yield f"{place}: expected list, got {_got(value)}"
                return
            for index, item in enumerate(value):
                yield from _faults(structures, type.element, item, place + _step(type, item, index))
        case MapOf():
            if not isinstance(value, Mapping):
                yield f"{place}: expected map, got {_got(value)}"
                return
            for name, item in value.items():
                yield from _faults(structures, type.element, item, f"{place}.{name}")
        case Struct():
            if not isinstance(value, Mapping):
                yield f"{place}: expected map, got {_got(value)}"
                return
            known = structures.fields(type)
            for name, item in value.items():
                if name not in known:
                    yield f"{place}.{name}: field not declared in schema"
                else:
                    yield from _faults(structures, known[name], item, f"{place}.{name}")


def known_only(structures: Structures, type: Type, value: Any) -> Any:
    """The value without fields that the kind doesn't have, which the API server drops (with a warning) from other writes."""
    match type:
        case Struct() if isinstance(value, Mapping):
            known = structures.fields(type)
            return {k: known_only(structures, known[k], v) for k, v in value.items() if k in known}
        case ListOf() if isinstance(value, (list, tuple)):
            return [known_only(structures, type.element, item) for item in value]
        case MapOf() if isinstance(value, Mapping):
            return {k: known_only(structures, type.element, v) for k, v in value.items()}
        case _:
            return Schema.copy(value)


def _step(type: ListOf, item: Any, index: int) -> str:
    try:
        (step,) = fields.items(type, [item]) if type.keys else (f"i:{index}",)
    except fields.KeyMissing:
        step = f"i:{index}"
    return f"[{index}]" if step.startswith("i:") else fields.show((step,))


def _got(value: Any) -> str:
    kind = "map" if isinstance(value, Mapping) else "list" if isinstance(value, (list, tuple)) else "scalar"
    return f"&value.valueUnstructured{{Value:{answers.text(value).strip(chr(34))}}}" if kind == "scalar" else kind
