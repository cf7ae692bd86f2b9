"""The pace of requests after an API server was away: who comes back to it, comes slowly.

At that moment everybody else comes back too, and what waited is sent at once. So for half a minute
requests go out one after the other, some in a second; before and after that nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

AWAY = 5.0  # seconds without any answer: less is a hiccup
SLOWLY = 30.0  # seconds
A_SECOND = 16.0  # requests


class ReconnectThrottle:
    """For one API server. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: float | None = None
        self._slow_until = self._next = 0.0

    def failed(self) -> None:
        """There was no answer."""
        if self._failed is None:
            self._failed = self._clock()

    def answered(self) -> None:
        """There was one, whatever it says."""
        if self._failed is not None and self._clock() - self._failed >= AWAY:
            self._slow_until = self._clock() + SLOWLY
        self._failed = None

    async def turn(self) -> None:
        """Waits for the turn of one more request."""
        now = self._clock()
        away = self._failed is not None and now - self._failed >= AWAY
        if not away and now >= self._slow_until:
            return
        turn = self._next = max(now, self._next + 1 / A_SECOND)
        await asyncio.sleep(turn - now)
