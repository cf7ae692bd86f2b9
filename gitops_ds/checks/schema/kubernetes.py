"""The strict schemas of Kubernetes, compiled for speed; the data is apimachinery/openapi.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gitops_ds.apimachinery import openapi
from gitops_ds.apimachinery.kubernetes_versions import NEWEST, VERSIONS
from gitops_ds.checks.schema import fastcheck


@dataclass(frozen=True, slots=True)
class Schemas:
    """A version: definitions by name, and the definition's name of each `apiVersion/kind`."""

    version: str
    definitions: Mapping[str, Any]
    kinds: Mapping[str, str]
    checks: fastcheck.Checks

    def passes(self, api_version: str, kind: str, body: Any) -> bool:
        """Whether the body is surely right; False means: have a closer look."""
        name = self.kinds.get(f"{api_version}/{kind}")
        return name is not None and self.checks.of(name)(body)


@cache
def schemas(version: str) -> Schemas:
    """The schemas of one of VERSIONS."""
    found = openapi.definitions(version)
    return Schemas(version, found, openapi.kinds(version), fastcheck.Checks(found))


def nearest(version: str) -> str:
    """The version of ours that stands for one that a repository names: itself, else the nearest
    one.
    """
    if version in VERSIONS:
        return version
    try:
        minor = int(version.removeprefix("v").split(".")[1])
    except (IndexError, ValueError):
        return NEWEST
    return min(VERSIONS, key=lambda known: abs(int(known.split(".")[1]) - minor))
