"""Kubernetes' own definitions for `"$ref": "k8s:NAME"` in a params.schema.json, read when first asked for."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import orjson

from gitops_ds.render.parameter_schema import Definition

_FOLDER = "schemas/kubernetes"


def of(versions: Sequence[str]) -> Definition:
    """The definitions of the oldest of these versions that is bundled, so that a value suits every one of them; else the newest."""

    def definition(name: str) -> Mapping[str, Any] | None:
        known = _bundled()
        named = [version for version in known if version in versions]
        definitions = _definitions((named or [*known[-1:]])[0]) if known else {}
        if name not in definitions:
            return None
        return {"$ref": f"#/definitions/{name}", "definitions": definitions}

    return definition


@cache
def _bundled() -> tuple[str, ...]:
    """The versions that are bundled, the oldest first; two-digit minors sort as texts do."""
    names = (entry.name for entry in (resources.files("gitops_ds") / _FOLDER).iterdir())
    return tuple(sorted(name[1:].removesuffix(".json.gz") for name in names if name.startswith("v") and name.endswith(".json.gz")))


@cache
def _definitions(version: str) -> Mapping[str, Any]:
    data = (resources.files("gitops_ds") / _FOLDER / f"v{version}.json.gz").read_bytes()
    found: Mapping[str, Any] = orjson.loads(gzip.decompress(data))["definitions"]
    return found
