"""The event of the CI job of a command."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

_LONGEST_EVENT: Final = 32 * 2**20


def event(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """The event in the file GITHUB_EVENT_PATH; empty if missing or unreadable."""
    name = environ.get("GITHUB_EVENT_PATH")
    try:
        document = orjson.loads(read(name, _LONGEST_EVENT)) if name else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def read(name: str, most: int) -> bytes:
    """The beginning of a file. Raises OSError, and ValueError for pipes and devices, which can
    block.
    """
    if not stat.S_ISREG(Path(name).stat().st_mode):
        raise ValueError("it is not a file")
    with Path(name).open("rb") as file:
        return file.read(most)
