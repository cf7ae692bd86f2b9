"""A connection of HTTP/1.1: the bytes that arrive, as heads, lines and pieces; directly, through a
proxy, with TLS.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

BUFFER_BYTES = 256 * 1024  # the limit of a head, and of what is read ahead of the reader
MOST_HEADERS = 256
ADDRESS_SECONDS = 5.0  # for each address of a host but the last one
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: .*)?\Z")
_PORTS = {"http": 80, "https": 443}

Headers = Sequence[tuple[str, str]]
NewSocket = Callable[[Any], socket.socket]


class HttpError(Exception):
    """The reply is no HTTP/1.1, or is incomplete."""


class Disconnected(HttpError):
    """The server closed the connection before its reply."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server and the way to it. `server_name` is the name in its certificate if it differs from
    the host of the URL; `tls` is None over plain http.
    """

    url: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The status and the headers of a reply, their names in lower case; `is_kept`: the server keeps
    the connection.
    """

    status: int
    headers: Headers
    is_kept: bool


class Connection(asyncio.Protocol):
    """One connection. A single task reads at a time; each method raises HttpError and OSError."""

    def __init__(self) -> None:
        """Not connected yet."""
        self.transport = cast("asyncio.Transport", None)
        self.idle_since = 0.0  # the end of the last reply, in seconds of the event loop
        self._buffer = bytearray()
        self._is_ended = self._is_paused = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection begins."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keeps the bytes; the server waits while too many are kept."""
        self._buffer += data
        if len(self._buffer) > BUFFER_BYTES and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The server sends nothing more."""
        self._is_ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection ended."""
        self._is_ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent: no side has closed it, and no byte is left."""
        return not (self._is_ended or self._buffer or self.transport.is_closing())

    def drop(self) -> None:
        """Closes it at once."""
        self.transport.abort()

    async def head(self) -> Head:
        """The next head that is no 1xx, such as 103 Early Hints."""
        while True:
            lines = (await self._until(b"\r\n\r\n")).split(b"\r\n")
            status_line = _STATUS_LINE.match(lines[0])
            if status_line is None:
                raise HttpError(f"the reply is no HTTP/1.1: {lines[0][:80]!r}")
            if not 100 <= int(status_line[2]) < 200:
                break
        headers = [_header(line) for line in lines[1:]]
        wishes = {value.lower() for name, value in headers if name == "connection"}
        is_kept = "close" not in wishes if status_line[1] == b"1" else "keep-alive" in wishes
        return Head(int(status_line[2]), headers, is_kept)

    async def line(self) -> bytes:
        """The next line, without its end."""
        return await self._until(b"\r\n")

    async def piece(self, most: int) -> bytes:
        """At most so many bytes, and at least one; empty at the end of the connection."""
        while not self._buffer:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return b""
            await self._more()
        return self._take(most)

    async def _until(self, mark: bytes) -> bytes:
        """The bytes before a mark, which is taken as well."""
        start = 0
        while (at := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark) + 1)
            if start > BUFFER_BYTES:
                raise HttpError("a head of the reply is too long")
            if self._is_ended:
                raise self._error or Disconnected("Server disconnected")
            await self._more()
        return self._take(at + len(mark))[: -len(mark)]

    def _take(self, most: int) -> bytes:
        taken = bytes(self._buffer[:most])
        del self._buffer[:most]
        return taken

    async def _more(self) -> None:
        """Waits for bytes or the end."""
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _header(line: bytes) -> tuple[str, str]:
    name, colon, value = line.decode("utf-8", "surrogateescape").partition(":")
    if not colon or not name or name != name.strip():
        raise HttpError("the reply has an invalid header")
    return name.lower(), value.strip()


def encoded(line: str, headers: Headers) -> bytes:
    """The bytes of a head. Raises ValueError for a control character, which could begin another
    header.
    """
    lines = [line, *(f"{name}: {value}" for name, value in headers)]
    if any(map(_CONTROL.search, lines)):
        raise ValueError("a header must not contain control characters")
    return "".join(f"{each}\r\n" for each in (*lines, "")).encode()


async def opened(endpoint: Endpoint, new_socket: NewSocket) -> Connection:
    """A connection to the server, through its proxy if it has one. Raises HttpError and OSError."""
    url = urllib.parse.urlsplit(endpoint.url)
    name = endpoint.server_name or url.hostname or ""
    if endpoint.proxy is None:
        return await _direct(url, endpoint.tls, name, new_socket)
    proxy = urllib.parse.urlsplit(endpoint.proxy)
    if proxy.scheme not in _PORTS:
        raise HttpError(f"the proxy {proxy.hostname} is neither http nor https")
    tls = ssl.create_default_context() if proxy.scheme == "https" else None
    connection = await _direct(proxy, tls, proxy.hostname or "", new_socket)
    if endpoint.tls is None:
        return connection
    try:
        await _tunnel(connection, url, proxy_authorization(endpoint.proxy))
        connection.transport = cast(
            "asyncio.Transport",
            await asyncio.get_running_loop().start_tls(
                connection.transport, connection, endpoint.tls, server_hostname=name
            ),
        )
    except BaseException:
        connection.drop()
        raise
    return connection


def proxy_authorization(proxy: str) -> Headers:
    """The header with the name and the password of a proxy's URL, if it has them."""
    url = urllib.parse.urlsplit(proxy)
    if url.username is None:
        return ()
    credentials = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
    return (("Proxy-Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}"),)


async def _direct(
    url: urllib.parse.SplitResult, tls: ssl.SSLContext | None, name: str, new_socket: NewSocket
) -> Connection:
    made = await _connected(url.hostname or "", url.port or _PORTS[url.scheme], new_socket)
    more: Mapping[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": name}
    try:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, sock=made, **more)
    except BaseException:
        made.close()
        raise
    return connection


async def _connected(host: str, port: int, new_socket: NewSocket) -> socket.socket:
    """A socket that is connected to the first address of the host that accepts it."""
    loop = asyncio.get_running_loop()
    *others, last = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for address in others:
        try:
            async with asyncio.timeout(ADDRESS_SECONDS):
                return await _socket_to(address, new_socket)
        except (TimeoutError, OSError):
            continue
    return await _socket_to(last, new_socket)


async def _socket_to(address: Any, new_socket: NewSocket) -> socket.socket:
    made = new_socket(address)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address[4])
    except BaseException:
        made.close()
        raise
    return made


async def _tunnel(connection: Connection, url: urllib.parse.SplitResult, headers: Headers) -> None:
    """Lets the proxy connect to the server.
    https://www.rfc-editor.org/rfc/rfc9110#name-connect
    """
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    where = f"{host}:{url.port or _PORTS[url.scheme]}"
    connection.transport.write(encoded(f"CONNECT {where} HTTP/1.1", [("Host", where), *headers]))
    head = await connection.head()
    if not 200 <= head.status < 300:
        raise HttpError(f"the proxy refuses the connection with status {head.status}")
