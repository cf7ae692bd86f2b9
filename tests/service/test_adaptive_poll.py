"""Polls become rarer while webhooks announce every commit, and return to the interval after a
commit without a webhook; crontabs; hours of virtual time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gitops_ds import errors
from gitops_ds.service.git import git_schedule
from gitops_ds.service.git.git_schedule import FACTOR, LONGEST, PollInterval
from gitops_ds.settings.repository import RepositorySettings


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


def made(interval: float = 60.0) -> tuple[PollInterval, Clock]:
    clock = Clock()
    return PollInterval(interval, clock), clock


def test_without_webhooks_every_tick_is_a_poll() -> None:
    polling, clock = made()
    assert looks(polling, clock, 6000) == 100
    polling.commit_found()
    assert looks(polling, clock, 6000) == 100


@pytest.mark.parametrize(
    "order", [("webhook_received", "commit_found"), ("commit_found", "webhook_received")]
)
def test_a_commit_that_a_webhook_announced_makes_polls_rarer(order: tuple[str, str]) -> None:
    polling, clock = made()
    for what in order:
        getattr(polling, what)()
        clock.now += 30
    assert polling.seconds == 60 * FACTOR
    assert 9 <= looks(polling, clock, 6000) <= 11


def test_a_webhook_alone_proves_nothing_yet() -> None:
    polling, clock = made()
    polling.webhook_received()
    assert looks(polling, clock, 600) == 10


def test_a_commit_without_a_webhook_restores_the_polls_until_webhooks_work_again() -> None:
    polling, clock = made()
    polling.webhook_received()
    polling.commit_found()
    clock.now += 3000
    polling.commit_found()
    assert looks(polling, clock, 6000) == 100
    polling.webhook_received()
    clock.now += 1
    polling.commit_found()
    assert 9 <= looks(polling, clock, 6000) <= 11


def test_a_webhook_announces_one_commit_however_soon_the_next_one_is_found() -> None:
    polling, clock = made(5.0)
    polling.webhook_received()
    polling.commit_found()
    assert polling.seconds == 50.0
    clock.now += 50
    polling.commit_found()
    assert polling.seconds == 5.0, "no webhook came for this one"


def test_polls_never_become_rarer_than_once_an_hour_nor_than_the_settings_allow() -> None:
    for interval, pause in ((1.0, 10.0), (600.0, LONGEST), (7200.0, 7200.0)):
        polling, _ = made(interval)
        polling.webhook_received()
        polling.commit_found()
        assert polling.seconds == pause


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
