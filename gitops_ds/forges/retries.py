"""Whether and when a request is repeated. Pure: the time is an argument.

https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api: a limit comes as 403
or 429, with `Retry-After`, with `X-RateLimit-Remaining: 0` and the time of the reset, or (secondary
limits) only with a message; the documented wait is then one minute.
https://docs.gitlab.com/security/rate_limits/: 429 with `Retry-After`.
"""

from __future__ import annotations

import email.utils
import math
from collections.abc import Mapping
from typing import Final

from gitops_ds.core.rate_limits import Backoff

BACKOFF: Final = Backoff(1.0, 16.0)
_RATE_LIMIT_BACKOFF: Final = Backoff(60.0, math.inf)
_LIMITED: Final = ("rate limit", "abuse detection")


def wait(
    status: int, headers: Mapping[str, str], message: str, attempt: int, now: float
) -> float | None:
    """Seconds until the request may be repeated; None if a retry can't help.

    `attempt` counts from 0; `headers` may be case-sensitive; `now` is in seconds since the epoch.
    """
    if limited(status, headers, message):
        seconds = _retry_after(headers, now)
        seconds = _until_reset(headers, now) if seconds is None else seconds
    elif status >= 500 or status == 408:
        seconds = _retry_after(headers, now)
    else:
        return None
    backoff = _RATE_LIMIT_BACKOFF if status == 403 else BACKOFF
    return backoff.delay(attempt + 1) if seconds is None else seconds


def limited(status: int, headers: Mapping[str, str], message: str) -> bool:
    """Whether a rate limit refused the request, without effect."""
    if status == 429:
        return True
    by_header = "Retry-After" in headers or headers.get("X-RateLimit-Remaining") == "0"
    return status == 403 and (by_header or any(text in message.lower() for text in _LIMITED))


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """In seconds or as a date: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after"""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (OverflowError, ValueError):  # a date with a number that is too large
        return None


def _until_reset(headers: Mapping[str, str], now: float) -> float | None:
    if headers.get("X-RateLimit-Remaining", headers.get("RateLimit-Remaining")) != "0":
        return None
    text = headers.get("X-RateLimit-Reset", headers.get("RateLimit-Reset", "")).strip()
    # One second more: both clocks are truncated to seconds.
    return max(float(text) - now, 0.0) + 1.0 if text.isascii() and text.isdigit() else None
