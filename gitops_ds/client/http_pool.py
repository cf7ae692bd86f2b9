"""HTTP/1.1 to one server over connections that are kept: requests, and their replies piece by
piece.

It has what an API server needs. aiohttp takes a tenth of a second to import, a third of the time of
a small command, and twice the CPU for each request.
https://www.rfc-editor.org/rfc/rfc9112
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import urllib.parse
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from gitops_ds.client import http_connection
from gitops_ds.client.http_connection import (
    Connection,
    Disconnected,
    Endpoint,
    Head,
    Headers,
    HttpError,
    NewSocket,
)

PIECE_BYTES = 256 * 1024
MOST_TRAILERS = 256
KEPT_SECONDS = 15.0  # less than servers and load balancers keep an idle connection
# Sent again on a new connection if the server closed a kept one before its reply: it may have
# carried out the request.
_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")
_LENGTH = re.compile(r"[0-9]{1,15}\Z")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for a new connection, for each piece of the reply, and for everything together; None
    is no limit.
    """

    connect: float | None = None
    piece: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; its path and query are percent-encoded."""

    method: str
    path: str
    headers: Headers
    body: bytes | None
    limits: Limits

    def encoded(self, endpoint: Endpoint) -> bytes:
        """The bytes to send. Raises ValueError for a header with a control character."""
        url = urllib.parse.urlsplit(endpoint.url)
        target, headers = url.path + self.path, [("Host", url.netloc), *self.headers]
        if endpoint.proxy and endpoint.tls is None:
            target = endpoint.url + self.path
            headers += http_connection.proxy_authorization(endpoint.proxy)
        if self.body is not None:
            headers.append(("Content-Length", str(len(self.body))))
        head = http_connection.encoded(f"{self.method} {target} HTTP/1.1", headers)
        return head + (self.body or b"")


@dataclass(slots=True)
class Reply:
    """A reply; its body is read once, by `pieces` or `read`, within `limit` seconds of each piece,
    until the deadline, which is in seconds of the event loop.
    """

    head: Head
    connection: Connection
    limit: float | None
    deadline: float | None
    is_whole: bool = field(default=False)

    @property
    def status(self) -> int:
        """The status code."""
        return self.head.status

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a header, by its name in lower case."""
        return tuple(value for key, value in self.head.headers if key == name)

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.values(name)), None)

    async def read(self) -> bytes:
        """The whole body. Raises HttpError, TimeoutError and OSError."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it comes. Raises HttpError, TimeoutError and OSError."""
        async for piece in self._body():
            yield piece
        self.is_whole = True

    def _body(self) -> AsyncIterator[bytes]:
        encoding, length = self.header("transfer-encoding"), self.header("content-length")
        if self.status in (204, 304):
            return self._of_length(0)
        if encoding is not None:
            if encoding.lower() != "chunked":
                raise HttpError(f"the transfer encoding {encoding!r} is not supported")
            return self._of_chunks()
        if length is None:
            return self._until_the_end()
        if not _LENGTH.match(length):
            raise HttpError(f"the content length {length!r} is no number")
        return self._of_length(int(length))

    async def _of_length(self, left: int) -> AsyncIterator[bytes]:
        while left:
            piece = await self._piece(left)
            if not piece:
                raise HttpError("the reply is incomplete")
            left -= len(piece)
            yield piece

    async def _of_chunks(self) -> AsyncIterator[bytes]:
        while left := _size(await self._line()):
            async for piece in self._of_length(left):
                yield piece
            if await self._line():
                raise HttpError("a chunk of the reply has another length")
        for _ in range(MOST_TRAILERS):
            if not await self._line():
                return
        raise HttpError("the reply has too many trailers")

    async def _until_the_end(self) -> AsyncIterator[bytes]:
        while piece := await self._piece(PIECE_BYTES):
            yield piece

    async def _piece(self, most: int) -> bytes:
        async with _until(self.deadline, self.limit):
            return await self.connection.piece(min(most, PIECE_BYTES))

    async def _line(self) -> bytes:
        async with _until(self.deadline, self.limit):
            return await self.connection.line()


def _until(deadline: float | None, seconds: float | None) -> asyncio.Timeout:
    return asyncio.timeout(seconds) if deadline is None else asyncio.timeout_at(deadline)


def _size(line: bytes) -> int:
    """The size of a chunk, without its extensions."""
    size = line.partition(b";")[0].strip()
    if not _SIZE.match(size):
        raise HttpError("the size of a chunk is no number")
    return int(size, 16)


class HttpPool:
    """Connections to one server, kept for later requests: at most `limit`, 0 for any number."""

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        limit: int,
        new_socket: NewSocket,
        guard: Callable[[], None],
    ) -> None:
        """`guard` is called right before a body is sent, and may raise."""
        self._endpoint, self._new_socket, self._guard = endpoint, new_socket, guard
        self._turns = asyncio.Semaphore(limit) if limit else None
        self._idle: list[Connection] = []
        self._every: set[Connection] = set()

    def close(self) -> None:
        """Closes every connection."""
        for connection in [*self._every]:
            self._drop(connection)
        self._idle.clear()

    @contextlib.asynccontextmanager
    async def request(self, request: HttpRequest) -> AsyncIterator[Reply]:
        """The reply to a request; its connection is kept if the body was read to its end.

        Raises HttpError, TimeoutError and OSError, as the reading of the body does.
        """
        total = request.limits.total
        deadline = None if total is None else asyncio.get_running_loop().time() + total
        if self._turns is not None:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire()
        try:
            reply = await self._reply(request, deadline)
            try:
                yield reply
            finally:
                self._release(reply)
        finally:
            if self._turns is not None:
                self._turns.release()

    async def _reply(self, request: HttpRequest, deadline: float | None) -> Reply:
        endpoint, limits = self._endpoint(), request.limits
        data = request.encoded(endpoint)
        while True:
            kept = self._kept()
            connection = kept or await self._new(endpoint, limits, deadline)
            try:
                if request.body is not None:
                    self._guard()
                connection.transport.write(data)
                async with _until(deadline, limits.piece):
                    head = await connection.head()
            except BaseException as error:
                self._drop(connection)
                is_stale = kept is not None and isinstance(error, Disconnected | ConnectionError)
                if not (is_stale and request.method in _REPEATABLE):
                    raise
            else:
                return Reply(head, connection, limits.piece, deadline)

    async def _new(self, endpoint: Endpoint, limits: Limits, deadline: float | None) -> Connection:
        async with asyncio.timeout_at(deadline), asyncio.timeout(limits.connect):
            connection = await http_connection.opened(endpoint, self._new_socket)
        self._every.add(connection)
        return connection

    def _kept(self) -> Connection | None:
        """The connection that was used last, unless it was idle for too long."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and now - connection.idle_since < KEPT_SECONDS:
                return connection
            self._drop(connection)
        return None

    def _release(self, reply: Reply) -> None:
        connection = reply.connection
        if reply.is_whole and reply.head.is_kept and connection.is_usable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._every.discard(connection)
        connection.drop()
