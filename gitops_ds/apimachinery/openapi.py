"""The strict schemas of Kubernetes, one file a version, written by scripts/schemas; read when first
asked for.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

VERSIONS: Final = ("1.34", "1.35", "1.36", "1.37")
NEWEST: Final = VERSIONS[-1]
_FOLDER: Final = Path(__file__).parents[1] / "schemas/kubernetes"


@cache
def _file(version: str) -> Mapping[str, Mapping[str, Any]]:
    data = (_FOLDER / f"v{version}.json.gz").read_bytes()
    found: Mapping[str, Mapping[str, Any]] = orjson.loads(gzip.decompress(data))
    return found


def definitions(version: str) -> Mapping[str, Any]:
    """The definitions of one of VERSIONS by their name: `io.k8s.api.core.v1.Container`."""
    return _file(version)["definitions"]


def kinds(version: str) -> Mapping[str, str]:
    """The name of the definition of each `apiVersion/kind` in one of VERSIONS."""
    return _file(version)["kinds"]
