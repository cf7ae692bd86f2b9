"""Attacks of clients without a secret: each opens its connections from the addresses of this
machine that it is given, and keeps them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FORGED = {"X-Signature": f"sha256={'0' * 64}"}


def head(headers: dict[str, str], path: str = "/hook", method: str = "POST") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode()


async def connect(port: int, address: str = "127.0.0.1") -> Opened:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


@contextlib.asynccontextmanager
async def held(
    port: int, addresses: Sequence[str], each: int, start: bytes
) -> AsyncIterator[list[Opened]]:
    """Connections that send the start of a request, and nothing else."""
    crowd: list[Opened] = []
    try:
        for address in addresses:
            for _ in range(each):
                reader, writer = await connect(port, address)
                crowd.append((reader, writer))
                writer.write(start)
        yield crowd
    finally:
        for _, writer in crowd:
            writer.close()


def half_request() -> bytes:
    return b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"


def slow_delivery() -> bytes:
    return head({**FORGED, "Content-Length": "1000"}) + b"{"


def slow_form() -> bytes:
    """A sign-in whose form never ends."""
    origin = {"Origin": "http://127.0.0.1", "Content-Length": "100"}
    return head(origin, "/login") + b"token="


async def send(port: int, *parts: bytes, address: str = "127.0.0.1") -> int:
    """The status of one request as these bytes."""
    reader, writer = await connect(port, address)
    try:
        for part in parts:
            writer.write(part)
        return int((await reader.readuntil(b"\r\n\r\n")).split()[1])
    finally:
        writer.close()


def forged_deliveries(count: int, size: int = 2) -> Iterator[tuple[bytes, bytes]]:
    body = b"x" * size
    for _ in range(count):
        yield head({**FORGED, "Content-Length": str(size)}), body


def wrong_tokens(count: int) -> Iterator[tuple[bytes, ...]]:
    """Bearer tokens and forms in turn."""
    for number in range(count):
        if number % 2:
            yield (head({"Authorization": f"Bearer wrong{number}"}, "/nodes", "GET"),)
        else:
            yield sign_in(f"wrong{number}")


def sign_in(token: str) -> tuple[bytes, bytes]:
    form = f"token={token}".encode()
    origin = {"Origin": "http://127.0.0.1", "Content-Length": str(len(form))}
    return head(origin, "/login"), form
