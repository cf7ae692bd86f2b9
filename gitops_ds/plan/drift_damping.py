"""Delays between corrections of drift that returns at once, which prevent an endless conflict of
two writers of a field. Pure.

Each correction of a template is a new revision, and a rollout. Two corrections are made at once;
from the third one in a row, each waits twice as long as the previous one, up to the comparison
interval of an unchanged cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gitops_ds.model.objects import Key
from gitops_ds.model.rate_limits import Backoff

AT_ONCE = 2  # corrections in a row without a delay
# seconds; drift that returns after a longer time, and twice the last wait, begins a new row
QUIET = 60.0


class Damping(msgspec.Struct, frozen=True):
    """Corrections of one object in a row: their number, the time of the last one, and the delay of
    the next one in seconds.
    """

    count: int
    at: float
    wait: float


Rows = Mapping[Key, Damping]


def corrected(rows: Rows, keys: Iterable[Key], now: float, backoff: Backoff) -> Rows:
    """The rows after these corrections. Rows that ended are dropped."""
    going = {key: row for key, row in rows.items() if now - row.at <= max(QUIET, 2 * row.wait)}
    for key in keys:
        count = going[key].count + 1 if key in going else 1
        wait = 0.0 if count < AT_ONCE else backoff.delay(count - AT_ONCE + 1)
        going[key] = Damping(count, now, wait)
    return going


def contested(rows: Rows, now: float) -> frozenset[Key]:
    """The objects whose correction waits."""
    return frozenset(key for key, row in rows.items() if now < row.at + row.wait)


def due(rows: Rows, keys: Iterable[Key]) -> float:
    """When the first of these may be corrected again."""
    return min((rows[key].at + rows[key].wait for key in keys if key in rows), default=float("inf"))
