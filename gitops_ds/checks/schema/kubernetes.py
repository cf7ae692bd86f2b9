"""The strict schemas of Kubernetes, compiled. The data is in apimachinery/kubernetes_types.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gitops_ds.apimachinery import kubernetes_types
from gitops_ds.apimachinery.kubernetes_versions import NEWEST, VERSIONS
from gitops_ds.checks.schema import fastcheck


class Schemas(msgspec.Struct, frozen=True):
    """The schemas of a version: definitions by name, and the name of the definition of each
    `apiVersion/kind`.
    """

    version: str
    definitions: Mapping[str, Any]
    kinds: Mapping[str, str]
    checks: fastcheck.Checks

    def passes(self, api_version: str, kind: str, body: Any) -> bool:
        """Whether the body is certainly valid. If not, jsonschema decides."""
        name = self.kinds.get(f"{api_version}/{kind}")
        return name is not None and self.checks.of(name)(body)


@cache
def schemas(version: str) -> Schemas:
    """The schemas of a version in VERSIONS."""
    definitions = kubernetes_types.definitions(version)
    return Schemas(
        version, definitions, kubernetes_types.kinds(version), fastcheck.Checks(definitions)
    )


def nearest(version: str) -> str:
    """The supported version for a declared one: the same, otherwise the nearest."""
    if version in VERSIONS:
        return version
    try:
        minor = int(version.removeprefix("v").split(".")[1])
    except (IndexError, ValueError):
        return NEWEST
    return min(VERSIONS, key=lambda candidate: abs(int(candidate.split(".")[1]) - minor))
