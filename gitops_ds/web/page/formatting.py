"""The format of values on the page: glyphs beside colours, short names, times. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from gitops_ds.model.health import HealthState

# A state is never shown only by colour.
GLYPHS: Mapping[str, str] = {
    HealthState.HEALTHY: "✓",
    HealthState.PROGRESSING: "↻",
    HealthState.DEGRADED: "!",
    HealthState.FAILED: "✕",
    HealthState.SUSPENDED: "‖",
    HealthState.MISSING: "?",
    "Proved": "✓",
    "Synced": "✓",
    "OutOfSync": "≠",
    "Held": "‖",
    "Unknown": "?",
    "good": "✓",
    "bad": "✕",
    "warn": "!",
    "plain": "·",
}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def spaced(word: str) -> str:
    """`ImagePullBackOff` as `Image pull back off`; other words unchanged."""
    parts = _HUMP.split(word)
    return " ".join([parts[0], *(part if part.isupper() else part.lower() for part in parts[1:])])


def at(seconds: float) -> str:
    """A moment in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
