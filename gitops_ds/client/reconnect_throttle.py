"""A limit on the rate of requests after an API server was unreachable.

At that moment every client reconnects, and the pending requests would be sent at once. So for half
a minute the requests are spread over time; before and after that there is no limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

AWAY = 5.0  # seconds without any answer before the limit applies
SLOWLY = 30.0  # seconds
A_SECOND = 16.0  # requests


class ReconnectThrottle:
    """The throttle of one API server. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: float | None = None
        self._slow_until = self._next = 0.0

    def failed(self) -> None:
        """Records a request without an answer."""
        if self._failed is None:
            self._failed = self._clock()

    def answered(self) -> None:
        """Records a response of any status."""
        if self._failed is not None and self._clock() - self._failed >= AWAY:
            self._slow_until = self._clock() + SLOWLY
        self._failed = None

    async def wait(self) -> None:
        """Waits until one more request may be sent."""
        now = self._clock()
        away = self._failed is not None and now - self._failed >= AWAY
        if not away and now >= self._slow_until:
            return
        turn = self._next = max(now, self._next + 1 / A_SECOND)
        await asyncio.sleep(turn - now)
