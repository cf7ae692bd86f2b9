"""The schedule of polls: an interval or a crontab. The interval is longer while webhooks announce
every commit: they are trusted after one that came with a commit, until a commit appears without
one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from gitops_ds.core.errors import SettingsError
from gitops_ds.kube.apimachinery import cron_windows
from gitops_ds.service.settings.repository import RepositorySettings

CHECK = 20.0  # seconds between checks for a jump of the wall clock
JUMP = 5.0  # seconds


def trigger_of(settings: RepositorySettings) -> BaseTrigger:
    """The trigger of the settings. Raises SettingsError for an invalid crontab or time zone."""
    if not settings.schedule:
        return IntervalTrigger(
            seconds=settings.interval, jitter=settings.jitter_seconds or None, timezone=UTC
        )
    try:
        return cron_windows.trigger(settings.schedule, settings.timezone)
    except cron_windows.UnknownTimeZone:
        raise SettingsError(
            f"repository.timezone: {settings.timezone!r} is unknown: set a name such as "
            "Europe/Berlin or UTC"
        ) from None
    except ValueError as error:
        raise SettingsError(
            f"repository.schedule: {settings.schedule!r} is not a crontab: minute, hour, day, "
            f"month, weekday ({error})"
        ) from None


class Schedule:
    """Ticks at the times of a trigger until it is shut down; the first tick is immediate.

    `tick` only requests a reconciliation, so a shutdown interrupts none, and a slow one skips no
    tick. The scheduler uses the wall clock (`clock`, seconds since 1970). After a jump of that
    clock it ticks at once and schedules again, because the next time may now be a day away.
    """

    def __init__(
        self, trigger: BaseTrigger, tick: Callable[[], None], clock: Callable[[], float] = time.time
    ) -> None:
        """Starts in the running event loop."""
        self._clock, self._loop = clock, asyncio.get_running_loop()
        # Jobs run in the loop at once: a shutdown would cancel a planned one with a warning.
        settings = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults=settings, executors={"default": DebugExecutor()}
        )
        self._job = self._scheduler.add_job(tick, trigger, next_run_time=datetime.now(UTC))
        self._scheduler.start()
        self._offset = self._clock_offset()
        self._timer = self._loop.call_later(CHECK, self._check_clock)

    def shutdown(self) -> None:
        """Ends the ticks."""
        self._timer.cancel()
        self._scheduler.shutdown(wait=False)

    def _clock_offset(self) -> float:
        return self._clock() - self._loop.time()

    def _check_clock(self) -> None:
        offset = self._clock_offset()
        if abs(offset - self._offset) > JUMP:
            self._job.modify(next_run_time=datetime.now(UTC))
        self._offset = offset
        self._timer = self._loop.call_later(CHECK, self._check_clock)


# With trusted webhooks the interval is multiplied by this, up to this number of seconds.
FACTOR, LONGEST = 10.0, 3600.0
# seconds within which a webhook and a commit belong together, in either order
TOGETHER = 120.0


@dataclass(slots=True)
class PollInterval:
    """The polls of one repository; `interval` is that of the settings. Times are seconds of a
    monotonic clock.
    """

    interval: float
    clock: Callable[[], float]
    webhooks_trusted: bool = field(default=False, init=False)
    _last_webhook: float | None = field(default=None, init=False)
    _last_commit: float | None = field(default=None, init=False)
    _last_poll: float | None = field(default=None, init=False)

    @property
    def seconds(self) -> float:
        """The current seconds between two polls."""
        if not self.webhooks_trusted:
            return self.interval
        return max(self.interval, min(self.interval * FACTOR, LONGEST))

    def due(self) -> bool:
        """Whether a tick of the schedule leads to a poll, which is then the last one."""
        now = self.clock()
        # A tick may be a little early, and one at the end of the interval must not be skipped.
        if (
            self.webhooks_trusted
            and self._last_poll is not None
            and now - self._last_poll < self.seconds - self.interval / 2
        ):
            return False
        self._last_poll = now
        return True

    def webhook_received(self) -> None:
        """Registers the announcement of a push."""
        self._last_webhook = self.clock()
        if self._last_commit is not None and self._last_webhook - self._last_commit <= TOGETHER:
            self.webhooks_trusted = True
            self._last_webhook = self._last_commit = None

    def commit_found(self) -> None:
        """Registers a new commit."""
        self._last_commit = self.clock()
        self.webhooks_trusted = (
            self._last_webhook is not None and self._last_commit - self._last_webhook <= TOGETHER
        )
        if self.webhooks_trusted:  # each webhook announces one commit
            self._last_webhook = self._last_commit = None
