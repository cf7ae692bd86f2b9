"""The serialization of the Go types of Kubernetes: the fields of a struct, their types, and which
are omitted when empty.

The data is schemas/kubernetes/types.json, written by scripts/go-types; it is read on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import orjson


class Field(msgspec.Struct, frozen=True):
    """One field. `type` is a scalar, a struct (`core/v1.Container`), `[]T` or `{}T`."""

    type: str
    pointer: bool
    omitted_when_empty: bool
    default: Any


@cache
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = orjson.loads(
        (resources.files("gitops_ds") / "schemas/kubernetes/types.json").read_bytes()
    )
    return data


@cache
def fields(struct: str) -> Mapping[str, Field]:
    """The fields of a struct by their JSON name."""
    rows = _data()["structs"][struct]
    return {
        name: Field(type, "p" in flags, "o" in flags, default)
        for name, (type, flags, default) in rows.items()
    }


def struct_of(api_version: str, kind: str) -> str | None:
    """The struct of a kind: `apps/v1.DaemonSet`; None for an unknown kind."""
    name: str | None = _data()["kinds"].get(f"{api_version}/{kind}")
    return name


@cache
def is_struct(type: str) -> bool:
    """Whether the type is a struct."""
    return "." in type and not type.startswith(("[]", "{}"))
