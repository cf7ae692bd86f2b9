"""The JSON schema of the settings file, generated from the groups of settings."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal

import msgspec

from gitops_ds.core import duration
from gitops_ds.core.duration import Duration
from gitops_ds.service.settings.base import Ratio, SettingsGroup
from gitops_ds.service.settings.service import SettingsFile

_SHARE = "An integer from 0, or a percentage such as 5%."
_DEFINITIONS = {
    "name": {
        "description": "A name: lower-case letters, digits and dashes, at most 63.",
        "type": "string",
        "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    },
    "commit": {
        "description": "A full commit id, 40 or 64 hexadecimal digits.",
        "type": "string",
        "pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$",
    },
    "duration": {
        "description": "A duration such as 30s, 5m, 2h, 14d or 1h30m.",
        "type": "string",
        "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
    },
    "share": {
        "description": _SHARE,
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?%$", "description": _SHARE},
        ],
    },
}
_OWN_TYPES = {Duration: "duration", Ratio: "share"}


def document() -> dict[str, Any]:
    """The whole schema."""
    _, components = msgspec.json.schema_components(
        [SettingsFile],
        schema_hook=lambda kind: {"$ref": f"#/$defs/{_OWN_TYPES[kind]}"},
        ref_template="#/$defs/{name}",
    )
    groups = {group.__name__: group for group in _groups(SettingsFile)}
    for name, group in groups.items():
        _complete(components[name], group)
    orders = {frozenset(values): values for group in groups.values() for values in _enums(group)}
    inline = _Inline(components, orders, _uses(components))
    shared = sorted(name for name, uses in inline.uses.items() if uses > 1 and name in groups)
    root = inline.of(components["SettingsFile"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://gitops-ds.io/schemas/settings.schema.json",
        "title": "Settings of the service",
        "description": SettingsFile.__doc__,
        **{key: value for key, value in root.items() if key != "description"},
        "$defs": {**_DEFINITIONS, **{name: inline.of(components[name]) for name in shared}},
    }


def _groups(group: type[SettingsGroup]) -> Iterator[type[SettingsGroup]]:
    """A group and all groups below it."""
    yield group
    for kind in _kinds(group):
        if isinstance(kind, type) and issubclass(kind, SettingsGroup):
            yield from _groups(kind)


def _kinds(group: type[SettingsGroup]) -> Iterator[Any]:
    """The types of its fields, with the members of unions."""
    stack = list(typing.get_type_hints(group).values())
    while stack:
        kind = stack.pop()
        yield kind
        if typing.get_origin(kind) is not Literal:
            stack += typing.get_args(kind)


def _enums(group: type[SettingsGroup]) -> Iterator[list[Any]]:
    """The values of its enums in their declared order, which msgspec sorts."""
    for kind in _kinds(group):
        if typing.get_origin(kind) is Literal:
            yield list(typing.get_args(kind))
        elif isinstance(kind, type) and issubclass(kind, Enum):
            yield [member.value for member in kind]


def _complete(schema: dict[str, Any], group: type[SettingsGroup]) -> None:
    """The schema with default durations and shares, and without defaults that mean "unset"."""
    for field in msgspec.structs.fields(group):
        entry = schema["properties"][field.encode_name]
        if entry.get("default", ...) in (None, "", (), [], {}):
            del entry["default"]
        if field.default_factory is not msgspec.NODEFAULT:
            value = field.default_factory()
            if isinstance(value, Duration):
                entry["default"] = duration.text(value)
            elif isinstance(value, Ratio):
                entry["default"] = str(value)


def _uses(components: dict[str, Any]) -> dict[str, int]:
    uses: dict[str, int] = {}
    stack: list[Any] = list(components.values())
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if name := _component(value):
                uses[name] = uses.get(name, 0) + 1
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return uses


def _component(schema: dict[str, Any]) -> str:
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return "" if name in _DEFINITIONS else name


class _Inline:
    """Schemas without references to components that are used once, and without null."""

    def __init__(
        self,
        components: dict[str, Any],
        orders: dict[frozenset[Any], list[Any]],
        uses: dict[str, int],
    ) -> None:
        self._components, self._orders, self.uses = components, orders, uses

    def of(self, schema: dict[str, Any]) -> dict[str, Any]:
        schema = self._merged(schema)
        result: dict[str, Any] = {}
        for key, value in schema.items():
            match key:
                case "title" | "uniqueItems" | "required" if not value or key != "required":
                    continue
                case "properties":
                    result[key] = {name: self.of(one) for name, one in value.items()}
                case "items" | "additionalProperties" if isinstance(value, dict):
                    result[key] = self.of(value)
                case "anyOf":
                    result[key] = [
                        self.of(element) if "required" not in element else element
                        for element in value
                    ]
                case "enum":
                    result[key] = self._orders.get(frozenset(value), value)
                case _:
                    result[key] = value
        return result

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with its alternatives or its reference merged into it, if possible."""
        alternatives = [
            alternative
            for alternative in schema.get("anyOf", ())
            if alternative != {"type": "null"}
        ]
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        if len(alternatives) == 1:
            return self._merged({**alternatives[0], **rest})
        if len(alternatives) == 2 and all(
            "$ref" in _item(alternative) for alternative in alternatives
        ):
            return self._one_or_more(alternatives, rest)
        if alternatives and all(set(alternative) == {"type"} for alternative in alternatives):
            return {**rest, "type": [alternative["type"] for alternative in alternatives]}
        name = _component(schema)
        if not name:
            # A definition has its own type.
            return {k: v for k, v in schema.items() if "$ref" not in schema or k != "type"}
        if self.uses[name] > 1 and self._components[name].get("type") == "object":
            return schema
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self._components[name], **rest}

    def _one_or_more(
        self, alternatives: list[dict[str, Any]], rest: dict[str, Any]
    ) -> dict[str, Any]:
        """An object or a list of such objects; errors keep the place that `anyOf` would lose."""
        reference = next(alternative for alternative in alternatives if "$ref" in alternative)
        return {
            **self._components[_component(reference)],
            **rest,
            "type": ["object", "array"],
            "items": {"$ref": reference["$ref"]},
        }


def _item(schema: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = schema.get("items", schema)
    return item
