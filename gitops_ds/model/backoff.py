"""Exponential back-off between retries. Pure: chance is an argument.

The back-off of failed pods, which is upstream's, is in `gitops_ds.daemonset.memory`.
"""

from __future__ import annotations

import msgspec

_MOST_DOUBLINGS = 30  # the float stays finite, however often a request has failed


class Backoff(msgspec.Struct, frozen=True):
    """Delays in seconds: `first`, then each one `factor` times the one before, up to `longest`.

    `jitter` is the share of the delay that chance adds at most, so that many clients do not retry
    at the same instant.
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay(self, failures: int, chance: float = 0.0) -> float:
        """Seconds until the next try after that many failures in a row, at least one.

        `chance` is a number in [0, 1).
        """
        exponent = min(failures - 1, _MOST_DOUBLINGS)
        return min(self.first * self.factor**exponent, self.longest) * (1 + self.jitter * chance)
