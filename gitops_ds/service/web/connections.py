"""The connections of a listener: a fixed number, and a new one is always accepted.

No queue and no share is reserved: if all are in use, the peer with the most connections that wait
for a request loses the oldest of these. A connection is therefore closed early only after as many
newer ones were opened, in the milliseconds of its request.

aiohttp waits indefinitely for the end of a request's head and body, and has no limit of
connections: https://github.com/aio-libs/aiohttp/issues/5386
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from typing import cast

from aiohttp import typedefs, web

CONNECTIONS = 500
HEAD_SECONDS = 15.0
ANSWER_SECONDS = 60.0


class ConnectionLimiter:
    """Limits the connections of one server, and closes those that wait too long for a complete
    request.
    """

    def __init__(self, connections: int = CONNECTIONS, head_seconds: float = HEAD_SECONDS) -> None:
        self.connections, self.head_seconds = connections, head_seconds
        self.open: set[_Guarded] = set()
        # Those without a complete request, by peer; the oldest first.
        self._waiting: dict[str, dict[_Guarded, None]] = {}

    def enter(self, guarded: _Guarded) -> bool:
        """Counts a connection until `leave`, and closes another one if necessary. False if each of
        them has a complete request.
        """
        if len(self.open) >= self.connections:
            if not self._waiting:
                return False
            of_peer = max(self._waiting.values(), key=len)
            next(iter(of_peer)).evict()
        self.open.add(guarded)
        return True

    def leave(self, guarded: _Guarded) -> None:
        """Ends the count of a connection; no effect for a rejected one."""
        self.open.discard(guarded)
        self.works(guarded)

    def waits(self, guarded: _Guarded) -> None:
        """The connection is the newest one of its peer that waits for a request."""
        self.works(guarded)
        self._waiting.setdefault(guarded.peer, {})[guarded] = None

    def works(self, guarded: _Guarded) -> None:
        """The connection has a complete request, which is never cut off."""
        if (of_peer := self._waiting.get(guarded.peer)) is not None:
            of_peer.pop(guarded, None)
            if not of_peer:
                del self._waiting[guarded.peer]

    def guarded(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """A new connection."""
        return _Guarded(inner, self)

    @property
    def middleware(self) -> typedefs.Middleware:
        """Suspends the idle timeout during a complete request: the event stream of a page lasts for
        days. One whose body is incomplete waits further, see `body_of`.
        """

        @web.middleware
        async def busy(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
            if (guard := _guard(request)) is None:
                return await handler(request)
            if request.content.is_eof():
                guard.busy()
            else:
                guard.idle()
            try:
                return await handler(request)
            finally:
                guard.idle()

        return busy


async def body_of(request: web.Request) -> AsyncIterator[bytes]:
    """The pieces of the body. Until its end the request counts as one that waits, and may be cut
    off. Raises RequestPayloadError for an invalid body, and ConnectionError.
    """
    async for piece in request.content.iter_any():
        yield piece
    if (guard := _guard(request)) is not None:
        guard.busy()


def peer_of(request: web.Request) -> str:
    """The peer that a request counts for, see `share_of`."""
    return share_of(address_of(request.transport))


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """The address of the other end, empty if the connection is closed."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if isinstance(name, tuple) and name else ""


def share_of(text: str) -> str:
    """The peer of an address: itself, or the network of an IPv6 host, which has all addresses of a
    /64 (https://www.rfc-editor.org/rfc/rfc7421).
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address.packed, 64), strict=False))


def _guard(request: web.Request) -> _Guarded | None:
    guard = request.transport.get_protocol() if request.transport else None
    return guard if isinstance(guard, _Guarded) else None


class _Guarded(asyncio.Protocol):
    """One connection: aiohttp's protocol plus an idle timeout."""

    def __init__(self, inner: asyncio.Protocol, door: ConnectionLimiter) -> None:
        self._inner, self._door = inner, door
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None
        self._refused = False
        self.peer = ""

    def busy(self) -> None:
        """A complete request: no timeout."""
        self._door.works(self)
        self._stop_timer()

    def idle(self) -> None:
        """The wait for the next request, or for the rest of one, starts."""
        self._stop_timer()
        if self._transport is not None and not self._transport.is_closing():
            self._door.waits(self)
            self._end = asyncio.get_running_loop().call_later(self._door.head_seconds, self._close)

    def evict(self) -> None:
        """Closes the connection for another one. A response that is not read yet is lost."""
        assert self._transport is not None
        self._door.leave(self)
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def _stop_timer(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _close(self) -> None:
        """Closes the connection; a response that is still being read is aborted after a timeout."""
        assert self._transport is not None
        self._transport.close()
        self._end = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._transport.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = share_of(address_of(transport))
        if not self._door.enter(self):
            self._refused = True
            self._transport.abort()
            return
        self._inner.connection_made(transport)
        self.idle()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._refused else self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._door.leave(self)
        if not self._refused:
            self._inner.connection_lost(exc)
