"""Kubernetes' own definitions for `"$ref": "k8s:NAME"` in a params.schema.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops_ds.apimachinery import openapi
from gitops_ds.render.parameter_schema import Definition


def of(versions: Sequence[str]) -> Definition:
    """The definitions of the oldest of these versions that is bundled, so that a value suits every
    one of them; else the newest.
    """

    def definition(name: str) -> Mapping[str, Any] | None:
        named = [version for version in openapi.VERSIONS if version in versions]
        found = openapi.definitions(named[0] if named else openapi.NEWEST)
        return {"$ref": f"#/definitions/{name}", "definitions": found} if name in found else None

    return definition
