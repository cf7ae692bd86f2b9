"""The bundled types of Kubernetes, in schemas/kubernetes, each file read on first use.

types.json, written by scripts/go-types, has the fields of the Go structs, their types, and which
are omitted when empty; scripts/schemas writes the strict schemas, one file per version.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

_FOLDER: Final = Path(__file__).parents[2] / "schemas/kubernetes"


@cache
def _file(version: str) -> Mapping[str, Mapping[str, Any]]:
    data = (_FOLDER / f"v{version}.json.gz").read_bytes()
    content: Mapping[str, Mapping[str, Any]] = orjson.loads(gzip.decompress(data))
    return content


def definitions(version: str) -> Mapping[str, Any]:
    """The definitions of a supported version by name: `io.k8s.api.core.v1.Container`."""
    return _file(version)["definitions"]


def kinds(version: str) -> Mapping[str, str]:
    """The name of the definition of each `apiVersion/kind` in a supported version."""
    return _file(version)["kinds"]


class Field(msgspec.Struct, frozen=True):
    """One field. `type` is a scalar, a struct (`core/v1.Container`), `[]T` or `{}T`."""

    type: str
    pointer: bool
    omitted_when_empty: bool
    default: Any


class _Types(msgspec.Struct, frozen=True):
    """The file: the struct of each kind, and the fields of each struct as JSON, since a process
    reads a few of 328.
    """

    kinds: Mapping[str, str]
    structs: Mapping[str, msgspec.Raw]


@cache
def _types() -> _Types:
    return msgspec.json.decode((_FOLDER / "types.json").read_bytes(), type=_Types)


@cache
def fields(struct: str) -> Mapping[str, Field]:
    """The fields of a struct by their JSON name."""
    rows = orjson.loads(memoryview(_types().structs[struct]))
    return {
        name: Field(type, "p" in flags, "o" in flags, default)
        for name, (type, flags, default) in rows.items()
    }


def struct_of(api_version: str, kind: str) -> str | None:
    """The struct of a kind: `apps/v1.DaemonSet`; None for an unknown kind."""
    return _types().kinds.get(f"{api_version}/{kind}")


@cache
def is_struct(type: str) -> bool:
    """Whether the type is a struct."""
    return "." in type and not type.startswith(("[]", "{}"))
