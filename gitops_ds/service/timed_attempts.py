"""A loop over items with individual times of attempts, which are read again after each
reconciliation.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class TimedAttempts(ABC, Generic[T]):
    """Attempts pending items while `run` runs; `clock` returns seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Announces the end of a reconciliation."""
        self._wake.set()

    async def run(self) -> None:
        """Attempts due items until it is cancelled."""
        while True:
            for item, at in self._pending():
                if at <= self._now():
                    await self._attempt(item)
            self._wake.clear()
            next_at = min((at for _, at in self._pending()), default=None)
            seconds = None if next_at is None else max(0.0, next_at - self._now())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    @abstractmethod
    def _pending(self) -> Sequence[tuple[T, float]]:
        """The items, each with the time of its next attempt."""

    @abstractmethod
    async def _attempt(self, item: T) -> None:
        """One attempt."""
