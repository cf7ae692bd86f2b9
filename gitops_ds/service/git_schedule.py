"""When Git is looked at: at an interval, by a crontab, and as rarely as webhooks allow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from gitops_ds.errors import SettingsError
from gitops_ds.settings.repository import RepositorySettings

LOOK = 20.0  # seconds between looks whether the wall clock jumped
JUMP = 5.0  # seconds
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")


def trigger_of(settings: RepositorySettings) -> BaseTrigger:
    """Raises SettingsError for a crontab or a time zone that is none."""
    if not settings.schedule:
        return IntervalTrigger(
            seconds=settings.interval, jitter=settings.jitter_seconds or None, timezone=UTC
        )
    try:
        zone = ZoneInfo(settings.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SettingsError(
            f"repository.timezone: {settings.timezone!r} is not known: write Europe/Berlin or UTC"
        ) from None
    try:
        minute, hour, day, month, weekday = settings.schedule.split()
        return CronTrigger(
            minute=minute,
            hour=hour,
            day=day,
            month=month,
            day_of_week=_named(weekday),
            timezone=zone,
        )
    except ValueError as error:
        raise SettingsError(
            f"repository.schedule: {settings.schedule!r} is no crontab: minute, hour, day, month, "
            f"weekday ({error})"
        ) from None


def _named(weekday: str) -> str:
    """The scheduler counts weekdays from Monday; in a crontab 0 and 7 are Sunday.
    https://man7.org/linux/man-pages/man5/crontab.5.html
    """
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


class Schedule:
    """Ticks from now on, the first one at once, until it is shut down.

    The job only wishes for a pass and returns, so that a shutdown never cuts one, and a slow one
    loses no tick. The scheduler goes by the wall clock (`clock`: seconds since 1970): when that
    jumped, it ticks at once and reckons anew, or it would wait for a moment that is a day away now.
    """

    def __init__(
        self, trigger: BaseTrigger, tick: Callable[[], None], clock: Callable[[], float] = time.time
    ) -> None:
        """Runs in the event loop that runs."""
        self._clock, self._loop = clock, asyncio.get_running_loop()
        # Jobs run within the loop and at once: one that was only planned could be cut, and complain
        # of that.
        settings = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults=settings, executors={"default": DebugExecutor()}
        )
        self._job = self._scheduler.add_job(tick, trigger, next_run_time=datetime.now(UTC))
        self._scheduler.start()
        self._apart = self._now_apart()
        self._looking = self._loop.call_later(LOOK, self._look)

    def shutdown(self) -> None:
        """Ends the ticks."""
        self._looking.cancel()
        self._scheduler.shutdown(wait=False)

    def _now_apart(self) -> float:
        return self._clock() - self._loop.time()

    def _look(self) -> None:
        now = self._now_apart()
        if abs(now - self._apart) > JUMP:
            self._job.modify(next_run_time=datetime.now(UTC))
        self._apart = now
        self._looking = self._loop.call_later(LOOK, self._look)
