"""Crontab expressions with a time zone, as triggers of APScheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

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
