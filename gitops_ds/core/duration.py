"""Durations: seconds from texts such as `1h30m`, and back."""

from __future__ import annotations

import math
import re

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(float):
    """A number of seconds; our files write it as `90s`, `5m` or `1h30m`."""


def seconds(text: str, *, unit: str = "") -> Duration:
    """The duration of a text such as `90s`, `5m` or `1h30m`.

    `unit` is that of a number without one. Raises ValueError, also for such a number if there is no
    `unit`.
    """
    parts = _PART.findall(text)
    sizes = [_UNITS.get(of or unit, math.inf) for _, of in parts]
    total = sum(float(number) * size for (number, _), size in zip(parts, sizes, strict=True))
    complete = "".join(number + of for number, of in parts) == text
    if not parts or not complete or not math.isfinite(total):
        raise ValueError(f"{text!r} is not a duration: write 30s, 5m or 1h")
    return Duration(total)


def text(seconds: float) -> str:
    """A number of whole seconds as our files write it: 90 is `90s`, 120 is `2m`."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"


def words(seconds: float) -> str:
    """`90 s`, `12 min`, `3.5 h`."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
