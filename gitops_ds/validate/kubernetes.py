"""The strict schemas of Kubernetes: one file a version, written by scripts/schemas, read when first asked for."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import orjson

from gitops_ds.validate import fastcheck

VERSIONS: Final = ("1.34", "1.35", "1.36", "1.37")
NEWEST: Final = VERSIONS[-1]


@dataclass(frozen=True, slots=True)
class Schemas:
    """One version: definitions by name, and the name of the definition of each `apiVersion/kind`."""

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
    file = resources.files("gitops_ds") / f"schemas/kubernetes/v{version}.json.gz"
    found = orjson.loads(gzip.decompress(file.read_bytes()))
    return Schemas(version, found["definitions"], found["kinds"], fastcheck.Checks(found["definitions"]))


def nearest(version: str) -> str:
    """The version of ours that stands for one that a repository names: itself, else the nearest one."""
    if version in VERSIONS:
        return version
    try:
        minor = int(version.removeprefix("v").split(".")[1])
    except (IndexError, ValueError):
        return NEWEST
    return min(VERSIONS, key=lambda known: abs(int(known.split(".")[1]) - minor))
