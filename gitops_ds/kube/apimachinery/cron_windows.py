"""Crontab expressions with a time zone, and the windows and freezes of rollouts: whether pods may
be replaced at a time, and when that changes.

A window opens by a crontab; for times that daylight saving skips or repeats, the rules of
APScheduler's CronTrigger apply.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from gitops_ds.core.rollouts.rollout_policy import Freeze, Window

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger


_DAY = 86400.0


def closed_until(names: Sequence[str], windows: Mapping[str, Window], now: float) -> float | None:
    """When the next of these windows opens, None while one is open, or without windows.

    Times are seconds since 1970; a window that never opens within a year counts as a year away.
    """
    opens = []
    for name in names:
        window = windows[name]
        began = _next(window, now - window.length)
        if began is not None and began <= now:
            return None
        opens.append(began if began is not None else now + 366 * _DAY)
    return min(opens, default=None)


def frozen_until(freezes: Iterable[Freeze], now: float) -> float | None:
    """The end of the freeze at that time, None without a freeze."""
    today = datetime.fromtimestamp(now, UTC).date()
    ends = [
        datetime.combine(
            date.fromisoformat(freeze.to) + timedelta(days=1), datetime.min.time(), UTC
        )
        for freeze in freezes
        if date.fromisoformat(freeze.from_) <= today <= date.fromisoformat(freeze.to)
    ]
    return max((end.timestamp() for end in ends), default=None)


def problem(window: Window, now: float) -> str:
    """Why a window can never be used: an invalid expression or time zone, or no opening within 30
    days; else empty.
    """
    try:
        began = _next(window, now)
    except UnknownTimeZone:
        zone = window.timezone
        return f"the time zone {zone!r} is unknown: set a name such as Europe/Berlin or UTC"
    except ValueError as error:
        return f"{window.cron!r} is not a crontab: minute, hour, day, month, weekday ({error})"
    if began is None or began > now + 30 * _DAY:
        return f"{window.cron!r} does not open within 30 days"
    return ""


def problem_of_year(window: Window) -> str:
    """The problem of a window on any day of a fixed year, so that the time of a check does not
    change its finding.

    A window that opens once a month has no problem, although a month can have 31 days.
    """
    problems = (problem(window, number * 5 * _DAY) for number in range(74))
    return next((one for one, two in itertools.pairwise(problems) if one and two), "")


def _next(window: Window, after: float) -> float | None:
    """The first opening after a time. Raises ValueError for an expression that is not a crontab."""
    times = trigger(window.cron, window.timezone)
    fires = times.get_next_fire_time(
        None, datetime.fromtimestamp(after, UTC) + timedelta(microseconds=1)
    )
    return None if fires is None else fires.timestamp()


_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")


class UnknownTimeZone(ValueError):
    """The time zone is not in the time zone database."""


def trigger(expression: str, timezone: str) -> CronTrigger:
    """The times of an expression: minute, hour, day, month, weekday.

    Raises UnknownTimeZone, and ValueError for a text that is not a crontab expression.
    """
    # Imported on demand, because the imports take as long as a small check.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from apscheduler.triggers.cron import CronTrigger

    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnknownTimeZone(timezone) from None
    minute, hour, day, month, weekday = expression.split()
    return CronTrigger(
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        day_of_week=_named(weekday),
        timezone=zone,
    )


def _named(weekday: str) -> str:
    """The weekdays of a crontab by name: its 0 and 7 are Sunday, the scheduler's 0 is Monday.
    https://man7.org/linux/man-pages/man5/crontab.5.html
    """
    day_names = []
    for part in weekday.split(","):
        days, slash, step = part.partition("/")
        first, dash, last = days.partition("-")
        if first.isdigit() and dash and last.isdigit():
            among = range(int(first), int(last) + 1, int(step) if slash else 1)
            day_names += [_DAYS[day] for day in among if day < len(_DAYS)] or [part]
        elif first.isdigit() and int(first) < len(_DAYS):
            day_names.append(_DAYS[int(first)] + dash + last + slash + step)
        else:
            day_names.append(part)
    return ",".join(day_names)
