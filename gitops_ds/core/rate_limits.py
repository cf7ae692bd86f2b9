"""The rates of retries and requests: exponential back-off and a token bucket. Pure: time and
chance are arguments.

The back-off of failed pods, which is upstream's, is in `gitops_ds.daemonset.memory`.
"""

from __future__ import annotations

import msgspec

_MOST_DOUBLINGS = 30  # the float stays finite, however often a request has failed


class Backoff(msgspec.Struct, frozen=True):
    """Delays in seconds: `first`, then each one twice the one before, up to `longest`.

    `jitter` is the share of the delay that chance adds at most, so that many clients do not retry
    at the same instant.
    """

    first: float
    longest: float
    jitter: float = 0.0

    def delay(self, failures: int, chance: float = 0.0) -> float:
        """Seconds until the next try after that many failures in a row, at least one.

        `chance` is a number in [0, 1).
        """
        exponent = min(failures - 1, _MOST_DOUBLINGS)
        return min(self.first * 2.0**exponent, self.longest) * (1 + self.jitter * chance)


class TokenBucket:
    """Holds at most `burst` tokens and gains `rate` tokens per second; full at the beginning.

    Times are seconds of any clock; if time goes backwards, nothing is refilled.
    """

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, burst: float, rate: float) -> None:
        self.burst, self.rate = burst, rate
        self._tokens, self._at = burst, float("-inf")

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Whether the bucket holds the amount, which is then taken."""
        self._refill(now)
        if self._tokens < amount:
            return False
        self._tokens -= amount
        return True

    def borrow(self, now: float, amount: float = 1.0) -> float:
        """Takes the amount, also in advance; the seconds until the bucket has regained it."""
        self._refill(now)
        self._tokens -= amount
        return max(0.0, -self._tokens / self.rate)

    def held(self, now: float) -> float:
        """The number of tokens, negative while borrowed ones are missing."""
        self._refill(now)
        return self._tokens

    def _refill(self, now: float) -> None:
        if self._tokens < self.burst:
            gained = max(0.0, now - self._at) * self.rate
            self._tokens = min(self.burst, self._tokens + gained)
        self._at = now
