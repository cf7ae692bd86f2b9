"""A fence around the writes of a cluster: they pass only while this replica leads.

The fence holds the end of the leadership. It compares a clock before each write, and again right
before the bytes are sent, because a process may be stopped in between. A write that is pending when
the time ends is cancelled. `HttpCluster` has its writes, dry runs and access
reviews pass; other reads are not limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable

from gitops_ds.core import errors


class Fence:
    """The end of the time for writes, by `clock`: monotonic seconds that include suspension of the
    machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """A closed fence."""
        self._clock = clock
        self._until = -math.inf
        self._passing: set[asyncio.Timeout] = set()

    @property
    def left(self) -> float:
        """Seconds until the fence closes."""
        return self._until - self._clock()

    def move(self, until: float) -> None:
        """Sets the end of the time, for pending writes as well; an end in the past closes the
        fence.
        """
        self._until = until
        when = (
            asyncio.get_running_loop().time() + self.left
            if self._passing and until != math.inf
            else None
        )
        for timeout in self._passing:
            if not timeout.expired():  # the write is cancelled already, and has not ended yet
                timeout.reschedule(when)

    def close(self) -> None:
        """Rejects every further write, and cancels the pending ones."""
        self.move(-math.inf)

    def check(self) -> None:
        """Raises NotLeading while the fence is closed."""
        if self.left <= 0:
            raise errors.NotLeading("another replica may lead by now: write rejected")

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """The context of a write. Raises NotLeading before it is sent, or when the time ends."""
        self.check()
        try:
            async with asyncio.timeout(None if self._until == math.inf else self.left) as limit:
                self._passing.add(limit)
                try:
                    yield
                finally:
                    self._passing.discard(limit)
        except TimeoutError:
            raise errors.NotLeading(
                "the lease ended during a write: its outcome is unknown"
            ) from None
