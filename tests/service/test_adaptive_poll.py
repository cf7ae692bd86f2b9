"""Polls become rarer while webhooks announce every commit, and return to the interval after a
commit without a webhook; crontabs; hours of virtual time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.service.git import git_schedule
from gitops_ds.service.git.git_schedule import FACTOR, LONGEST, PollInterval
from gitops_ds.service.settings.repository import RepositorySettings


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def looks(polling: PollInterval, clock: Clock, seconds: float) -> int:
    """How many of the schedule's ticks are taken in that time, with a jitter of a tenth."""
    end, number, taken = clock.now + seconds, 0, 0
    while clock.now < end - polling.interval / 2:
        clock.now += polling.interval * (0.9, 1.1, 1.0)[number % 3]
        number += 1
        taken += polling.due()
    return taken


HOOK, COMMIT = PollInterval.webhook_received, PollInterval.commit_found
RARE = 60 * FACTOR


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([], 60),
        ([COMMIT], 60),
        ([HOOK], 60),
        ([HOOK, 30, COMMIT], RARE),
        ([COMMIT, 30, HOOK], RARE),
        ([HOOK, COMMIT, 3000, COMMIT], 60),
        ([HOOK, COMMIT, 3000, COMMIT, 3000, HOOK, 1, COMMIT], RARE),
        # one webhook announces one commit, however soon the next one is found
        ([HOOK, COMMIT, 50, COMMIT], 60),
    ],
)
def test_polls_are_rarer_while_webhooks_announce_every_commit(
    events: list[Any], seconds: float
) -> None:
    clock = Clock()
    polling = PollInterval(60.0, clock)
    for event in events:
        if isinstance(event, int):
            clock.now += event
        else:
            event(polling)
    assert polling.seconds == seconds
    assert abs(looks(polling, clock, 6000) - 6000 / seconds) <= 1


@pytest.mark.parametrize(("interval", "longest"), [(1.0, 10.0), (600.0, LONGEST), (7200.0, 7200.0)])
def test_polls_never_become_rarer_than_once_an_hour_nor_than_the_settings_allow(
    interval: float, longest: float
) -> None:
    polling = PollInterval(interval, Clock())
    polling.webhook_received()
    polling.commit_found()
    assert polling.seconds == longest


def ticks(schedule: str, count: int, start: datetime, zone: str = "UTC") -> list[str]:
    trigger = git_schedule.trigger_of(RepositorySettings("", schedule=schedule, timezone=zone))
    result: list[str] = []
    last = None
    for _ in range(count):
        last = trigger.get_next_fire_time(last, last + timedelta(seconds=1) if last else start)
        result.append(last.astimezone(UTC).strftime("%a %d %H:%M"))
    return result


START = datetime(2026, 3, 27, 0, 0, 1, tzinfo=UTC)  # a Friday, two days before summer time begins


@pytest.mark.parametrize(
    ("schedule", "zone", "expected"),
    [
        ("*/5 * * * *", "UTC", ["Fri 27 00:05", "Fri 27 00:10"]),
        ("30 2 * * *", "Europe/Berlin", ["Fri 27 01:30", "Sat 28 01:30"]),
        ("0 8 * * 1-5", "UTC", ["Fri 27 08:00", "Mon 30 08:00"]),
        ("0 8 * * 0", "UTC", ["Sun 29 08:00", "Sun 05 08:00"]),
        ("0 8 * * 7", "UTC", ["Sun 29 08:00", "Sun 05 08:00"]),
        ("0 8 * * 5-7", "UTC", ["Fri 27 08:00", "Sat 28 08:00", "Sun 29 08:00"]),
        ("0 8 * * sat,1", "UTC", ["Sat 28 08:00", "Mon 30 08:00"]),
        ("0 8 * * 0-6/3", "UTC", ["Sat 28 08:00", "Sun 29 08:00", "Wed 01 08:00"]),
        ("0 8 1 */3 *", "UTC", ["Wed 01 08:00", "Wed 01 08:00"]),
    ],
)
def test_a_crontab_means_what_cron_means(schedule: str, zone: str, expected: list[str]) -> None:
    assert ticks(schedule, len(expected), START, zone) == expected


@pytest.mark.parametrize(
    "schedule", ["* * * *", "* * * * * *", "61 * * * *", "* * * * 8", "a b c d e", "@daily"]
)
def test_an_invalid_crontab_is_reported(schedule: str) -> None:
    with pytest.raises(errors.SettingsError, match="crontab"):
        git_schedule.trigger_of(RepositorySettings("", schedule=schedule))


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "", "\0"])
def test_an_unknown_time_zone_is_reported(zone: str) -> None:
    with pytest.raises(errors.SettingsError, match="is unknown"):
        git_schedule.trigger_of(RepositorySettings("", schedule="* * * * *", timezone=zone))
