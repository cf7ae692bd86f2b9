"""Times as the API server writes them (RFC 3339), and seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=8192)
def seconds(text: str) -> float | None:
    """Seconds since 1970; None for an invalid time. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def text(moment: float) -> str:
    """The format of metav1.Time: whole seconds, UTC."""
    return _text(int(moment))


@lru_cache(maxsize=8192)
def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(moment: float) -> str:
    """The format of metav1.MicroTime."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def elapsed(seconds: float) -> str:
    """A duration as kubectl prints ages: in whole seconds, minutes, hours or days."""
    whole = max(int(seconds), 0)
    for unit, size, until in (("s", 1, 120), ("m", 60, 180 * 60), ("h", 3600, 48 * 3600)):
        if whole < until:
            return f"{whole // size}{unit}"
    return f"{whole // 86400}d"
