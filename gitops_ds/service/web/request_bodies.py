"""The bodies of requests without authentication yet, in a fixed amount of memory.

No number of them is reserved. When the memory is full, the peer with the most bytes loses its
oldest body: slow ones are the oldest, so a body is lost only if more than that amount arrives
during its transfer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from enum import Enum

from aiohttp import web

from gitops_ds.service.web import connections

BODY_SECONDS = 10.0  # less than that of a connection, so that a slow body gets an answer
HELD_BYTES = 32 << 20
# Hashing releases the interpreter's lock; the other threads of the process are for Git.
_JUDGED_AT_ONCE = 2


class BodyFault(Enum):
    """Why a body was not read: over the limit, not complete or not judged in time, evicted for
    newer ones, or ended by the client.
    """

    TOO_LARGE = "too large"
    TOO_SLOW = "too slow"
    EVICTED = "evicted"
    INCOMPLETE = "incomplete"


class BodyRejected(Exception):
    """A body was not read."""

    def __init__(self, fault: BodyFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class _Body:
    def __init__(self, peer: str, limit: asyncio.Timeout) -> None:
        self.peer, self.limit = peer, limit
        self.data, self.evicted = bytearray(), False


class RequestBodies:
    """Reads bodies of at most `longest` bytes, and counts the memory of each one until it is
    judged. `seconds` include the wait for others that are judged.
    """

    def __init__(self, longest: int, seconds: float = BODY_SECONDS, most: int = HELD_BYTES) -> None:
        self.longest, self.seconds = longest, seconds
        self.most = max(most, 2 * _JUDGED_AT_ONCE * longest)
        self.held = 0
        self._open: dict[_Body, None] = {}  # those that can be evicted, the oldest first
        self._turns = asyncio.Semaphore(_JUDGED_AT_ONCE)

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """The complete body, held until the end of the block; few blocks run at once. Raises
        BodyRejected.
        """
        limit = asyncio.timeout(self.seconds)
        body = _Body(connections.peer_of(request), limit)
        self._open[body] = None
        try:
            async with contextlib.AsyncExitStack() as turn:
                try:
                    async with limit:
                        await self._transfer(request, body)
                        await turn.enter_async_context(self._turns)
                except TimeoutError:
                    fault = BodyFault.EVICTED if body.evicted else BodyFault.TOO_SLOW
                    raise BodyRejected(fault) from None
                except (web.RequestPayloadError, ConnectionError):
                    raise BodyRejected(BodyFault.INCOMPLETE) from None
                if body.evicted:
                    raise BodyRejected(BodyFault.EVICTED)
                del self._open[body]
                yield bytes(body.data)
        finally:
            self._open.pop(body, None)
            self.held -= len(body.data)

    async def _transfer(self, request: web.Request, body: _Body) -> None:
        async for piece in connections.body_of(request):
            body.data += piece
            self.held += len(piece)
            if len(body.data) > self.longest:
                raise BodyRejected(BodyFault.TOO_LARGE)
            while self.held > self.most and (victim := self._victim()) is not None:
                self._evict(victim)
            if body.evicted:
                raise BodyRejected(BodyFault.EVICTED)

    def _victim(self) -> _Body | None:
        """The oldest body of the peer with the most bytes."""
        of_peer: Counter[str] = Counter()
        for body in self._open:
            of_peer[body.peer] += len(body.data)
        peer = max(of_peer, key=of_peer.__getitem__, default="")
        return next((body for body in self._open if body.peer == peer and body.data), None)

    def _evict(self, body: _Body) -> None:
        self.held -= len(body.data)
        body.data, body.evicted = bytearray(), True
        del self._open[body]
        if not body.limit.expired():
            body.limit.reschedule(asyncio.get_running_loop().time())
