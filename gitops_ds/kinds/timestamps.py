"""Times as the API server writes them (RFC 3339), and seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=8192)
def seconds(text: str) -> float | None:
    """Seconds since 1970; None for a text that is no time. A time without a zone is taken as UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def text(moment: float) -> str:
    """As metav1.Time is written: whole seconds, UTC."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(moment: float) -> str:
    """As metav1.MicroTime is written."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
