"""A queue of keys, not events: each key is there once, is worked on by one worker at a time, and
comes back later when it failed.

It knows no clock: `now` is an argument, in seconds on any scale that only grows.

What always holds:
- a key that was added is taken at least once after that;
- a key is never taken while it is taken;
- adding a key that waits moves it forward, never back;
- a key that fails comes back, later each time, and the keys that fail come back at a bounded rate
  all together;
- two turns of a key do not follow each other at once, so that what happens in between is looked at
  in one turn.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, TypeVar

from gitops_ds.model.backoff import Backoff

K = TypeVar("K")

# seconds; client-go's default rate limiter, as are the next two
BACKOFF = Backoff(0.005, 1000.0)
RETRIES_PER_SECOND, RETRY_BURST = 10.0, 100
# seconds; news brings a key that failed back sooner than its retry, but not at once
LONGEST_FAILED_HOLD = 1.0
# The next turn of a key waits five times what the last one took, within these bounds (seconds).
SHORTEST_HOLD, LONGEST_HOLD, HOLD_FACTOR = 0.005, 0.05, 5.0


@dataclass(slots=True)
class _Bucket:
    """A token bucket that lends: each token taken is due later than the one before."""

    full_at: float = float("-inf")

    def delay(self, now: float) -> float:
        self.full_at = max(self.full_at, now) + 1 / RETRIES_PER_SECOND
        return max(0.0, self.full_at - now - RETRY_BURST / RETRIES_PER_SECOND)


class WorkQueue(Generic[K]):
    """The keys that wait, with the time at which each is due."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._taken: dict[K, float] = {}
        self._not_before: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._added = 0
        self._bucket = _Bucket()

    def __len__(self) -> int:
        """How many keys wait."""
        return len(self._due)

    def add(self, key: K, at: float) -> None:
        """Makes the key due at `at`, or earlier if it is so already."""
        at = max(at, self._not_before.get(key, at))
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        if key not in self._taken:
            self._push(key, at)

    def take(self, now: float) -> K | None:
        """The key that is due longest, None if none is. It must be given back by `done`."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._taken[key] = now
        return key

    def done(self, key: K, now: float, failed: bool = False) -> None:
        """Gives a key back; a failed one comes again by itself."""
        cost = now - self._taken.pop(key)
        hold, wait = max(SHORTEST_HOLD, min(LONGEST_HOLD, HOLD_FACTOR * cost)), 0.0
        if failed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            wait = BACKOFF.delay(failures)
            wait = max(wait, self._bucket.delay(now))
            hold = max(hold, min(wait, LONGEST_FAILED_HOLD))
        else:
            self._failures.pop(key, None)
        self._not_before[key] = now + hold
        self._sweep(now)
        if key in self._due:
            self._due[key] = max(self._due[key], now + hold)
            self._push(key, self._due[key])
        if failed:
            self.add(key, now + wait)

    def forget(self, key: K) -> None:
        """Drops what is remembered of a key that is gone for good; one that waits or is taken stays
        so.
        """
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def next_due(self) -> float | None:
        """When the next key can be taken; None when nothing waits, or only keys that are taken."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def _sweep(self, now: float) -> None:
        """Drops what no longer says anything, once there is more of it than of keys at work."""
        enough = 64 + 4 * (len(self._due) + len(self._taken))
        if len(self._not_before) > enough:
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        if len(self._heap) > enough:
            self._heap = [
                entry
                for entry in self._heap
                if self._due.get(entry[2]) == entry[0] and entry[2] not in self._taken
            ]
            heapq.heapify(self._heap)

    def _push(self, key: K, at: float) -> None:
        self._added += 1
        heapq.heappush(self._heap, (at, self._added, key))

    def _drop_stale(self) -> None:
        while self._heap:
            at, _, key = self._heap[0]
            if key not in self._taken and self._due.get(key) == at:
                return
            heapq.heappop(self._heap)
