"""The types of each kind's fields, also of custom kinds, and their merge by server-side apply.

scripts/structure generates the table (structure.json) from Kubernetes' OpenAPI file.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from gitops_ds.core.objects import Body, Resource


class ScalarType(msgspec.Struct, frozen=True):
    """One value: string, integer, number, boolean, intOrString or quantity."""

    name: str


class Opaque(msgspec.Struct, frozen=True):
    """Any JSON. `atomic`: owned and replaced as a whole; else maps are merged, and lists are
    not.
    """

    atomic: bool


class ListOf(msgspec.Struct, frozen=True):
    """A list: of items identified by `keys`, a set, or (neither) one value."""

    element: Type
    keys: tuple[str, ...] = ()
    is_set: bool = False


class MapOf(msgspec.Struct, frozen=True):
    """A map with arbitrary keys."""

    element: Type
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields, by its name in the table."""

    name: str
    atomic: bool = False


Type = ScalarType | Opaque | ListOf | MapOf | Struct

ATOMIC = Opaque(atomic=True)
FREE = Opaque(atomic=False)

# The default of an omitted key field (the API server's defaults, which are not in the OpenAPI
# file).
KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}


class Structures:
    """The fields of every struct by name, and the struct of every kind; custom kinds are added to a
    copy.
    """

    def __init__(
        self, fields: Mapping[str, Mapping[str, Type]], structs: Mapping[Resource, Struct]
    ) -> None:
        self._fields, self._structs = dict(fields), dict(structs)
        self._served = _by_kind(self._structs)

    def copy(self) -> Structures:
        """A copy of the table."""
        return Structures(self._fields, self._structs)

    @property
    def served(self) -> Mapping[tuple[str, str], Resource]:
        """Every kind, by (group, kind)."""
        return self._served

    def fields(self, struct: Struct) -> Mapping[str, Type]:
        """The fields of a struct and their types."""
        return self._fields[struct.name]

    def of(self, resource: Resource) -> Struct:
        """The struct of a kind. Raises KeyError for a kind that is not served."""
        return self._structs[resource]

    def add(self, resource: Resource, fields: Mapping[str, Type]) -> None:
        """Adds a kind."""
        name = f"{resource.api_version}/{resource.kind}"
        self._fields[name] = {
            "apiVersion": ScalarType("string"),
            "kind": ScalarType("string"),
            "metadata": Struct("apis.meta.v1.ObjectMeta"),
            **fields,
        }
        self._structs[resource] = Struct(name)
        self._served = _by_kind(self._structs)

    def remove(self, resource: Resource) -> None:
        """Removes a kind."""
        self._structs.pop(resource, None)
        self._served = _by_kind(self._structs)


def _by_kind(resources: Iterable[Resource]) -> Mapping[tuple[str, str], Resource]:
    return {(resource.group, resource.kind): resource for resource in resources}


@functools.cache
def builtin() -> Structures:
    """The built-in kinds; must not be changed (use `copy`)."""
    raw = json.loads((resources.files(__package__) / "structure.json").read_bytes())
    fields = {
        name: {field: _type(encoded) for field, encoded in struct["fields"].items()}
        for name, struct in raw["types"].items()
    }
    structs = {
        Resource(
            entry["group"], entry["version"], entry["kind"], entry["plural"], entry["namespaced"]
        ): Struct(entry["type"])
        for entry in raw["served"]
    }
    return Structures(fields, structs)


def _type(encoded: Any) -> Type:
    if encoded == "any":
        return ATOMIC
    if isinstance(encoded, str):
        return ScalarType(encoded)
    if "ref" in encoded:
        return Struct(encoded["ref"], encoded.get("atomic", False))
    if "map" in encoded:
        return MapOf(_type(encoded["map"]), encoded.get("atomic", False))
    keys = tuple(encoded.get("keys", ()))
    return ListOf(_type(encoded["list"]), keys, encoded.get("set", False))


def custom_kinds(crd: Body) -> Iterator[tuple[Resource, Mapping[str, Type]]]:
    """Its kind in the storage version, with the top-level fields of that version's schema.

    Nested fields are accepted unchecked: custom objects are not validated here.
    """
    spec = crd["spec"]
    names = spec["names"]
    for version in spec.get("versions") or ():
        if version.get("storage"):
            resource = Resource(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                namespaced=spec.get("scope") == "Namespaced",
            )
            root = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            fields = {
                name: _type_of_schema(schema)
                for name, schema in (root.get("properties") or {}).items()
            }
            status = {"status": FREE} if "status" in (version.get("subresources") or {}) else {}
            yield (
                resource,
                {
                    name: type
                    for name, type in {**fields, **status}.items()
                    if name not in ("metadata",)
                },
            )


def _type_of_schema(schema: Mapping[str, Any]) -> Type:
    match schema.get("type"):
        case "string" | "integer" | "number" | "boolean" as name:
            return ScalarType(name)
        case "array":
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            is_set = schema.get("x-kubernetes-list-type") == "set"
            return ListOf(_type_of_schema(schema.get("items") or {}), keys, is_set)
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return MapOf(
                _type_of_schema(schema["additionalProperties"]),
                schema.get("x-kubernetes-map-type") == "atomic",
            )
        case _:
            return FREE
