"""HTTP/1.1 to an API server: connections are kept and limited, replies come in each framing, and
what is no HTTP is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from gitops_ds.client import http_connection, http_pool
from gitops_ds.client.http_connection import Endpoint, HttpError
from gitops_ds.client.http_pool import HttpPool, HttpRequest, Limits, Reply

SECONDS = 60.0
OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"


@dataclass
class Server:
    """Answers each request with the bytes of `replies` in order, then with the last ones; closes
    the connection after empty bytes. `requests` has the heads, by connection.
    """

    replies: list[bytes]
    port: int = 0
    requests: list[list[str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    is_silent: bool = False
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[str] = []
        self.requests.append(heads)
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                heads.append(head)
                if length := re.search(r"Content-Length: (\d+)", head):
                    self.bodies.append(await reader.readexactly(int(length[1])))
                if self.is_silent:
                    await reader.read()
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                writer.write(reply)
                await writer.drain()
                if not reply or b"Connection: close" in reply or b"HTTP/1.0" in reply:
                    break
        writer.close()


@contextlib.asynccontextmanager
async def running(*replies: bytes) -> AsyncIterator[Server]:
    server = Server(list(replies))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for writer in server.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def new_socket(address: tuple[socket.AddressFamily, socket.SocketKind, int]) -> socket.socket:
    return socket.socket(*address[:3])


@contextlib.asynccontextmanager
async def pool_of(
    server: Server, limit: int = 0, guard: Callable[[], None] = lambda: None
) -> AsyncIterator[HttpPool]:
    endpoint = Endpoint(f"http://127.0.0.1:{server.port}")
    pool = HttpPool(lambda: endpoint, limit, new_socket, guard)
    try:
        async with asyncio.timeout(SECONDS):
            yield pool
    finally:
        pool.close()


def request(
    method: str = "GET", body: bytes | None = None, limits: Limits | None = None, **headers: str
) -> HttpRequest:
    return HttpRequest(method, "/a?b=c", [*headers.items()], body, limits or Limits(total=SECONDS))


async def send(pool: HttpPool, one: HttpRequest) -> tuple[Reply, bytes]:
    async with pool.request(one) as reply:
        return reply, await reply.read()


FRAMINGS = {
    "length": OK + b"Content-Length: 5\r\n\r\nhello",
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n"
    + b"\r\n",
    "a hint before": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK
    + b"Content-Length: 5\r\n\r\nhello",
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_body_of_each_framing_is_read_and_its_connection_is_kept(name: str) -> None:
    async def scene() -> None:
        async with running(FRAMINGS[name]) as server, pool_of(server) as pool:
            for _ in range(3):
                reply, body = await send(pool, request())
                assert (reply.status, body) == (200, b"hello")
            assert [len(heads) for heads in server.requests] == [3]

    asyncio.run(scene())


@pytest.mark.parametrize(
    "reply",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        OK + b"Connection: close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
    ],
)
def test_a_connection_that_the_server_closes_is_not_used_again(reply: bytes) -> None:
    async def scene() -> None:
        async with running(reply) as server, pool_of(server) as pool:
            for _ in range(2):
                assert (await send(pool, request()))[1] == b"hello"
            assert [len(heads) for heads in server.requests] == [1, 1]

    asyncio.run(scene())


def test_a_request_has_its_headers_and_its_body() -> None:
    async def scene() -> None:
        async with running(EMPTY) as server, pool_of(server) as pool:
            await send(pool, request("PATCH", b'{"a": 1}', Accept="x/y"))
            assert server.requests[0][0].splitlines() == [
                "PATCH /a?b=c HTTP/1.1",
                f"Host: 127.0.0.1:{server.port}",
                "Accept: x/y",
                "Content-Length: 8",
                "",
            ]
            assert server.bodies == [b'{"a": 1}']
            with pytest.raises(ValueError, match="control characters"):
                await send(pool, request(Name="a\r\nImpersonate-User: admin"))

    asyncio.run(scene())


def test_a_header_may_come_several_times() -> None:
    async def scene() -> None:
        warnings = b'Warning: 299 - "one"\r\nWARNING: 299 - "two"\r\nContent-Length: 0\r\n\r\n'
        async with running(OK + warnings) as server, pool_of(server) as pool:
            reply, _ = await send(pool, request())
            assert reply.values("warning") == ('299 - "one"', '299 - "two"')
            assert (reply.header("content-length"), reply.header("retry-after")) == ("0", None)

    asyncio.run(scene())


INVALID = [
    b"SSH-2.0-OpenSSH\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
    OK + b"no header\r\n\r\n",
    OK + b"Content-Length: -1\r\n\r\n",
    OK + b"Transfer-Encoding: gzip\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    OK + b"Content-Length: 9\r\nConnection: close\r\n\r\nhello",
    OK + b"A: " + b"b" * 2 * http_connection.BUFFER_BYTES,
]


@pytest.mark.parametrize("reply", INVALID)
def test_what_is_no_reply_is_an_error_and_leaves_no_connection(reply: bytes) -> None:
    async def scene() -> None:
        async with running(reply, EMPTY) as server, pool_of(server) as pool:
            with pytest.raises(HttpError):
                await send(pool, request())
            assert (await send(pool, request()))[0].status == 200
            assert len(server.requests) == 2

    asyncio.run(scene())


@pytest.mark.parametrize(("method", "is_repeated"), [("GET", True), ("PATCH", False)])
def test_only_a_request_that_may_be_repeated_is_sent_again_if_a_kept_connection_ends(
    method: str, is_repeated: bool
) -> None:
    async def scene() -> None:
        async with running(EMPTY, b"", EMPTY) as server, pool_of(server) as pool:
            await send(pool, request())
            if is_repeated:
                assert (await send(pool, request(method)))[0].status == 200
            else:
                with pytest.raises(HttpError, match="Server disconnected"):
                    await send(pool, request(method, b"{}"))
            assert len(server.requests) == (2 if is_repeated else 1)

    asyncio.run(scene())


def test_a_new_connection_that_ends_is_an_error() -> None:
    async def scene() -> None:
        async with running(b"") as server, pool_of(server) as pool:
            with pytest.raises(HttpError, match="Server disconnected"):
                await send(pool, request())
            assert len(server.requests) == 1

    asyncio.run(scene())


def test_unrequested_bytes_are_not_the_reply_of_the_next_request() -> None:
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"

    async def scene() -> None:
        async with running(EMPTY + late, EMPTY) as server, pool_of(server) as pool:
            for _ in range(2):
                assert (await send(pool, request()))[0].status == 200
            assert len(server.requests) == 2

    asyncio.run(scene())


def test_no_more_requests_than_the_limit_are_sent_at_a_time() -> None:
    async def scene() -> None:
        async with running(EMPTY) as server, pool_of(server, limit=2) as pool:
            async with pool.request(request()), pool.request(request()):
                with pytest.raises(TimeoutError):
                    await send(pool, request(limits=Limits(total=0.05)))
            await asyncio.gather(*(send(pool, request()) for _ in range(20)))
            assert len(server.requests) <= 2 + 2  # those of the two that were not read are closed

    asyncio.run(scene())


@pytest.mark.parametrize("limits", [Limits(total=0.05), Limits(piece=0.05)])
def test_a_silent_server_is_given_up_in_time(limits: Limits) -> None:
    async def scene() -> None:
        async with running(EMPTY) as server, pool_of(server) as pool:
            server.is_silent = True
            with pytest.raises(TimeoutError):
                await send(pool, request(limits=limits))

    asyncio.run(scene())


def test_the_guard_is_called_before_a_body_is_sent_and_may_refuse_it() -> None:
    class Fenced(Exception):
        pass

    def guard() -> None:
        raise Fenced

    async def scene() -> None:
        async with running(EMPTY) as server, pool_of(server, guard=guard) as pool:
            await send(pool, request())
            with pytest.raises(Fenced):
                await send(pool, request("PATCH", b"{}"))
            assert [len(heads) for heads in server.requests] == [1]
            assert server.bodies == []

    asyncio.run(scene())


def test_a_proxy_gets_the_whole_url_and_its_password() -> None:
    async def scene() -> None:
        async with running(EMPTY) as server:
            proxy = f"http://me:p%40ss@127.0.0.1:{server.port}"
            endpoint = Endpoint("http://cluster.example:8080/k8s", proxy=proxy)
            pool = HttpPool(lambda: endpoint, 0, new_socket, lambda: None)
            assert (await send(pool, request()))[0].status == 200
            pool.close()
            (head,) = server.requests[0]
            assert head.startswith("GET http://cluster.example:8080/k8s/a?b=c HTTP/1.1\r\n")
            assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head

    asyncio.run(scene())


def test_large_bodies_pass_through_a_small_buffer() -> None:
    size = 20 * http_pool.PIECE_BYTES

    async def scene() -> None:
        reply = OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
        async with running(reply) as server, pool_of(server) as pool:
            async with pool.request(request()) as found:
                pieces = [len(piece) async for piece in found.pieces()]
            assert sum(pieces) == size
            assert max(pieces) <= http_pool.PIECE_BYTES

    asyncio.run(scene())
