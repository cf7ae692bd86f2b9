"""Durations as a settings file writes them."""

from __future__ import annotations

import math
import re

from gitops_ds.errors import SettingsError

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


class Duration(float):
    """Seconds; a settings file writes them as `90s`, `5m` or `1h30m`."""


def seconds(text: str | float) -> float:
    """A duration such as `90s`, `5m` or `1h30m`, in seconds; a plain number counts seconds. Raises
    SettingsError.
    """
    if isinstance(text, int | float):
        return float(text)
    parts = _DURATION.findall(text)
    total = sum(float(number) * _UNITS[unit or None] for number, unit in parts)
    if (
        not parts
        or "".join(number + unit for number, unit in parts) != text
        or not math.isfinite(total)
    ):
        raise SettingsError(f"{text!r} is not a duration: write 30s, 5m or 1h")
    return float(total)


def text(seconds: float) -> str:
    """A number of whole seconds as a settings file writes it: 90 is `90s`, 120 is `2m`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
