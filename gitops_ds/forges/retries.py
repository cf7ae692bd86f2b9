"""Whether a request is sent again, and when. Pure: the time is an argument.

https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api: a limit comes as 403
or 429, with `Retry-After`, with
`X-RateLimit-Remaining: 0` and the time of the reset, or (the secondary one) with words alone, and
then a minute is asked for.
https://docs.gitlab.com/security/rate_limits/: 429 with `Retry-After`.
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from typing import Final

LONGEST_BACK_OFF: Final = 16.0
_MINUTE: Final = 60.0
_LIMITED: Final = ("rate limit", "abuse detection")


def wait(
    status: int, headers: Mapping[str, str], message: str, attempt: int, now: float
) -> float | None:
    """Seconds until the request may be sent again; None where that would not help.

    `attempt` counts from 0, `headers` are asked for as they are written here, `now` is in seconds
    since the epoch.
    """
    if limited(status, headers, message):
        by_clock = _reset(headers, now)
        told = _retry_after(headers, now)
        told = by_clock if told is None else told
        return (
            told
            if told is not None
            else _MINUTE * 2**attempt
            if status == 403
            else back_off(attempt)
        )
    if status >= 500 or status == 408:
        told = _retry_after(headers, now)
        return back_off(attempt) if told is None else told
    return None


def back_off(attempt: int) -> float:
    """1, 2, 4 … seconds."""
    return min(2.0**attempt, LONGEST_BACK_OFF)


def limited(status: int, headers: Mapping[str, str], message: str) -> bool:
    """Whether the refusal is for too many requests, and nothing was done."""
    if status == 429:
        return True
    told = "Retry-After" in headers or headers.get("X-RateLimit-Remaining") == "0"
    return status == 403 and (told or any(words in message.lower() for words in _LIMITED))


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """In seconds or as a date: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after"""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - now, 0.0)
    except ValueError:
        return None


def _reset(headers: Mapping[str, str], now: float) -> float | None:
    if headers.get("X-RateLimit-Remaining", headers.get("RateLimit-Remaining")) != "0":
        return None
    text = headers.get("X-RateLimit-Reset", headers.get("RateLimit-Reset", "")).strip()
    # A second more: the server's clock and ours are cut to whole ones.
    return max(float(text) - now, 0.0) + 1.0 if text.isascii() and text.isdigit() else None
