"""The work queue: a set of keys, each reconciled by one worker at a time, with retries.

It has no clock: `now` is an argument, in seconds of any clock that does not go backwards.

Invariants:
- a key that was added is taken at least once afterwards;
- a key is never taken twice at the same time;
- adding a waiting key moves it forward, never back;
- a failed key is retried, later each time; all retries together have a bounded rate;
- two reconciliations of a key have a delay between them, so that one covers several events.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from gitops_ds.core.rate_limits import Backoff, TokenBucket

K = TypeVar("K")

# seconds; client-go's default rate limiter, as are the next two
BACKOFF = Backoff(0.005, 1000.0)
RETRIES_PER_SECOND, RETRY_BURST = 10.0, 100
# seconds; an event can reconcile a failed key before its retry, but not at once
LONGEST_FAILED_DELAY = 1.0
# The next reconciliation of a key waits five times the duration of the last, within these bounds
# (seconds).
SHORTEST_DELAY, LONGEST_DELAY, DELAY_FACTOR = 0.005, 0.05, 5.0


class WorkQueue(Generic[K]):
    """The waiting keys, each with the time at which it is due."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._taken: dict[K, float] = {}
        self._not_before: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._added = 0
        self._bucket = TokenBucket(RETRY_BURST, RETRIES_PER_SECOND)

    def __len__(self) -> int:
        """The number of waiting keys."""
        return len(self._due)

    def add(self, key: K, at: float) -> bool:
        """Makes the key due at `at`; an earlier due time remains. Returns whether the key can be
        taken earlier than before.
        """
        at = max(at, self._not_before.get(key, at))
        if key in self._due and self._due[key] <= at:
            return False
        self._due[key] = at
        if key in self._taken:
            return False
        self._push(key, at)
        return True

    def take(self, now: float) -> K | None:
        """The key that has been due longest, None without one. `done` must follow."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._taken[key] = now
        return key

    def done(self, key: K, now: float, failed: bool = False) -> float:
        """Ends the reconciliation of a key; a failed one is added again for a retry, after the
        returned seconds.
        """
        cost = now - self._taken.pop(key)
        delay, wait = max(SHORTEST_DELAY, min(LONGEST_DELAY, DELAY_FACTOR * cost)), 0.0
        if failed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            wait = BACKOFF.delay(failures)
            wait = max(wait, self._bucket.borrow(now))
            delay = max(delay, min(wait, LONGEST_FAILED_DELAY))
        else:
            self._failures.pop(key, None)
        self._not_before[key] = now + delay
        self._sweep(now)
        if key in self._due:
            self._due[key] = max(self._due[key], now + delay)
            self._push(key, self._due[key])
        if failed:
            self.add(key, now + wait)
        return wait

    def forget(self, key: K) -> None:
        """Drops the failures and the delay of a deleted key; a waiting or taken key remains so."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def next_due(self) -> float | None:
        """When the next key can be taken; None if no key waits, or only keys that are taken."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def _sweep(self, now: float) -> None:
        """Drops obsolete entries once they outnumber the keys in use."""
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
