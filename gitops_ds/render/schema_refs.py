"""Kubernetes' own definitions for `"$ref": "k8s:NAME"` in a params.schema.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops_ds.apimachinery import kubernetes_versions, openapi
from gitops_ds.render.parameter_schema import Definition


def of(versions: Sequence[str]) -> Definition:
    """The definitions of the oldest supported one of these versions, so that a value is valid in
    all of them; else of the newest.
    """

    def definition(name: str) -> Mapping[str, Any] | None:
        supported = [version for version in kubernetes_versions.VERSIONS if version in versions]
        definitions = openapi.definitions(supported[0] if supported else kubernetes_versions.NEWEST)
        if name not in definitions:
            return None
        return {"$ref": f"#/definitions/{name}", "definitions": definitions}

    return definition
