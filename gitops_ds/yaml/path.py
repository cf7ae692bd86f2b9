"""The value at a path of plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gitops_ds.model.objects import Path

MISSING: Final = object()


def at(value: Any, path: Path) -> Any:
    """The value at a path, which may be None; MISSING if the path does not exist."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value
