"""The delays between corrections of drift that returns at once."""

from __future__ import annotations

from gitops_ds.model.objects import Key
from gitops_ds.model.rate_limits import Backoff
from gitops_ds.plan import drift
from gitops_ds.plan.drift import Damping

KEY, OTHER = Key("apps", "DaemonSet", "a", "a"), Key("apps", "DaemonSet", "a", "b")
BACKOFF = Backoff(10.0, 600.0)


def waits(number: int) -> list[float]:
    rows: drift.Rows = {}
    delays, now = [], 0.0
    for _ in range(number):
        rows = drift.rows_after(rows, [KEY], now, BACKOFF)
        delays.append(rows[KEY].wait)
        now += rows[KEY].wait
    return delays


def test_the_first_correction_waits_for_nothing_and_each_later_one_twice_as_long() -> None:
    delays = waits(5)
    assert delays == [0.0, *(BACKOFF.delay(number) for number in (1, 2, 3, 4))]
    assert delays[-1] == 8 * delays[1]


def test_a_row_ends_after_a_minute_or_twice_its_wait() -> None:
    for wait, quiet in ((0.0, 60.0), (30.0, 60.0), (40.0, 80.0), (100.0, 200.0)):
        rows = {KEY: Damping(3, 0.0, wait)}
        assert drift.rows_after(rows, [], quiet, BACKOFF).keys() == {KEY}
        assert drift.rows_after(rows, [], quiet + 0.1, BACKOFF) == {}
        assert drift.rows_after(rows, [KEY], quiet, BACKOFF)[KEY].count == 4
        assert drift.rows_after(rows, [KEY], quiet + 0.1, BACKOFF)[KEY].count == 1


def test_a_correction_waits_until_its_time() -> None:
    rows = {KEY: Damping(3, 100.0, 20.0), OTHER: Damping(3, 100.0, 40.0)}
    assert drift.damped(rows, 119.9) == {KEY, OTHER}
    assert drift.damped(rows, 120.0) == {OTHER}
    assert drift.correction_due(rows, [KEY, OTHER]) == 120.0
    assert drift.correction_due(rows, [OTHER]) == 140.0
    assert drift.correction_due({}, [KEY]) == float("inf")
