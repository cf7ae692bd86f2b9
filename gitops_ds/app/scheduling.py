"""When Git is looked at: at an interval, by a crontab, and as rarely as webhooks allow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from gitops_ds.errors import SettingsError
from gitops_ds.settings.repository import RepositorySettings

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")


def trigger_of(settings: RepositorySettings) -> BaseTrigger:
    """Raises SettingsError for a crontab or a time zone that is none."""
    if not settings.schedule:
        return IntervalTrigger(seconds=settings.interval, jitter=settings.jitter or None, timezone=UTC)
    try:
        zone = ZoneInfo(settings.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SettingsError(f"repository.timezone: {settings.timezone!r} is not known: write Europe/Berlin or UTC") from None
    try:
        minute, hour, day, month, weekday = settings.schedule.split()
        return CronTrigger(minute=minute, hour=hour, day=day, month=month, day_of_week=_named(weekday), timezone=zone)
    except ValueError as error:
        raise SettingsError(
            f"repository.schedule: {settings.schedule!r} is no crontab: minute, hour, day, month, weekday ({error})"
        ) from None


def _named(weekday: str) -> str:
    """The scheduler counts weekdays from Monday; in a crontab 0 and 7 are Sunday. https://man7.org/linux/man-pages/man5/crontab.5.html"""
    found = []
    for part in weekday.split(","):
        days, slash, step = part.partition("/")
        first, dash, last = days.partition("-")
        if first.isdigit() and dash and last.isdigit():
            among = range(int(first), int(last) + 1, int(step) if slash else 1)
            found += [_DAYS[day] for day in among if day < len(_DAYS)] or [part]
        elif first.isdigit() and int(first) < len(_DAYS):
            found.append(_DAYS[int(first)] + dash + last + slash + step)
        else:
            found.append(part)
    return ",".join(found)


def started(trigger: BaseTrigger, tick: Callable[[], None]) -> AsyncIOScheduler:
    """Ticks from now on, the first one at once, until it is shut down.

    The job only wishes for a pass and returns, so that a shutdown never cuts one, and a slow one loses no tick.
    """
    schedule = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None})

    async def job() -> None:
        tick()

    schedule.add_job(job, trigger, next_run_time=datetime.now(UTC))
    schedule.start()
    return schedule
