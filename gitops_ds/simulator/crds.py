"""The kinds that a CustomResourceDefinition adds.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gitops_ds.model.objects import Body, Resource
from gitops_ds.simulator import type_schema
from gitops_ds.simulator.type_schema import ListOf, MapOf, ScalarType, Type


def served(crd: Body) -> Iterator[tuple[Resource, Mapping[str, Type]]]:
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
                name: _type(schema) for name, schema in (root.get("properties") or {}).items()
            }
            status = (
                {"status": type_schema.FREE}
                if "status" in (version.get("subresources") or {})
                else {}
            )
            yield (
                resource,
                {
                    name: type
                    for name, type in {**fields, **status}.items()
                    if name not in ("metadata",)
                },
            )


def _type(schema: Mapping[str, Any]) -> Type:
    match schema.get("type"):
        case "string" | "integer" | "number" | "boolean" as name:
            return ScalarType(name)
        case "array":
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            is_set = schema.get("x-kubernetes-list-type") == "set"
            return ListOf(_type(schema.get("items") or {}), keys, is_set)
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return MapOf(
                _type(schema["additionalProperties"]),
                schema.get("x-kubernetes-map-type") == "atomic",
            )
        case _:
            return type_schema.FREE
