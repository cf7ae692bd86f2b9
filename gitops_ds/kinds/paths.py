"""What stands at a path of plain data."""

from __future__ import annotations

from typing import Any, Final

from gitops_ds.model.objects import Path

MISSING: Final = object()


def at(value: Any, path: Path) -> Any:
    """The value at a path, which may be None; MISSING where the path leads nowhere."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value
