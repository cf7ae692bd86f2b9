"""The webhook on a real socket answers during endless bodies, hanging senders and floods."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from gitops_ds.core.deployer_state import Push
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.requests import WebhookReceived, WebhookResult
from gitops_ds.service.web import connections, server, webhook_payloads, webhooks
from tests.web.test_webhooks import GITHUB, SECRET, body_of, headers_of

CAP = 4096


@dataclass
class Scene:
    port: int
    door: connections.ConnectionLimiter
    hooks: webhooks.Hooks
    events: list[Event] = field(default_factory=list)
    woken: list[Push] = field(default_factory=list)

    @property
    def results(self) -> list[WebhookResult]:
        return [record.result for record in self.events if isinstance(record, WebhookReceived)]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, *parts: bytes) -> tuple[int, dict[str, object]]:
        """One request as these bytes; status and body of the answer."""
        reader, writer = await self.connect()
        try:
            for part in parts:
                writer.write(part)
            return await answer(reader)
        finally:
            writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, object]]:
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.read()
    return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else {}


FORGED = {
    "X-Signature": f"sha256={'0' * 64}",
    "X-Hub-Signature-256": f"sha256={'0' * 64}",
    "X-Gitea-Signature": "0" * 64,
}


def head(headers: dict[str, str], path: str = "/hook", method: str = "POST") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode()


def right(body: bytes) -> dict[str, str]:
    return {
        **headers_of("github", body),
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
    }


def play(
    script: Callable[[Scene], Awaitable[None]], *, most: int = 40, patience: float = 30.0
) -> None:
    async def main() -> None:
        async with served(most, patience) as scene:
            await script(scene)

    asyncio.run(main())


@asynccontextmanager
async def served(most: int, patience: float) -> AsyncIterator[Scene]:
    events: list[Event] = []
    woken: list[Push] = []
    target = webhooks.WebhookTarget(
        "agents",
        ("https://git.example.com/platform/node-agents",),
        "main",
        lambda: (SECRET,),
        woken.append,
    )
    hooks = webhooks.Hooks(
        lambda: [target],
        events.append,
        asyncio.get_running_loop().time,
        max_bytes=CAP,
        body_seconds=patience * 2 / 3,  # as in the service, sooner than the connection ends
    )
    door = connections.ConnectionLimiter(most, patience)
    app = web.Application(middlewares=[door.middleware])
    app.add_routes(hooks.routes())
    runner = web.AppRunner(app, access_log=None, lingering_time=0.2)
    await runner.setup()
    site = server.Site(runner, door, "127.0.0.1", 0)
    await site.start()
    try:
        yield Scene(site.port, door, hooks, events, woken)
    finally:
        await runner.cleanup()


async def test_a_signed_push_is_accepted(scene: Scene, /) -> None:
    body = body_of(GITHUB)
    status, result = await scene.send(head(right(body)), body)
    assert (status, result["result"], result["woken"]) == (202, "accepted", ["agents"])
    status, result = await scene.send(head(right(body)), body)
    assert (status, result["result"]) == (409, "replayed")
    assert len(scene.woken) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/hook", 405), ("POST", "/hooks", 404), ("POST", "/hook/a/b", 404)],
)
async def test_nothing_else_is_there(scene: Scene, /, method: str, path: str, status: int) -> None:
    assert (await scene.send(head({"Connection": "close"}, path, method)))[0] == status


async def test_a_length_over_the_cap_is_refused_before_a_byte_of_it_came(scene: Scene, /) -> None:
    status, result = await scene.send(head({"Content-Length": str(CAP + 1)}))
    assert (status, result["result"]) == (413, "too_large")
    status, _ = await scene.send(head({"Content-Length": str(16 << 30)}))
    assert status == 413


async def test_a_gigabyte_in_chunks_is_cut_at_the_cap_in_bounded_memory(scene: Scene, /) -> None:
    tracemalloc.start()
    try:
        reader, writer = await scene.connect()
        writer.write(head({"Transfer-Encoding": "chunked", **FORGED}))
        chunk, sent = b"10000\r\n" + b"x" * 0x10000 + b"\r\n", 0
        try:
            while sent < 1 << 30:
                writer.write(chunk)
                await writer.drain()
                sent += 0x10000
        except ConnectionError:
            pass
        assert sent < 1 << 30
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    writer.close()
    del reader
    assert scene.results == [WebhookResult.TOO_LARGE]


async def test_a_body_that_is_just_at_the_cap_is_taken(scene: Scene, /) -> None:
    body = body_of(GITHUB)
    body += b" " * (CAP - len(body))
    assert (await scene.send(head(right(body)), body))[0] == 202
    body += b" "
    assert (await scene.send(head(right(body)), body))[0] == 413


async def test_a_compressed_body_is_not_unpacked(scene: Scene, /) -> None:
    assert (
        await scene.send(head({"Content-Encoding": "gzip", "Content-Length": "10"}), b"0123456789")
    )[0] == 415


@pytest.mark.parametrize("length", ["-1", "abc", "1, 2", "9" * 5000])
async def test_an_invalid_length_is_a_bad_request(scene: Scene, /, length: str) -> None:
    assert (await scene.send(head({"Content-Length": length})))[0] in (400, 413)


@pytest.mark.play(patience=1.0)
async def test_a_body_that_trickles_is_cut_off_and_others_are_answered_meanwhile(
    scene: Scene, /
) -> None:
    slow = [await scene.connect() for _ in range(5)]
    for _, writer in slow:
        writer.write(head({"Content-Length": "1000", **FORGED}) + b"{")
    body = body_of(GITHUB)
    assert (await scene.send(head(right(body)), body))[0] == 202
    for reader, writer in slow:
        assert (await answer(reader))[0] == 408
        writer.close()
    assert scene.results == [WebhookResult.ACCEPTED] + [WebhookResult.TOO_SLOW] * 5


@pytest.mark.play(patience=0.5)
async def test_a_head_that_never_ends_is_cut_off_at_the_first_and_at_the_second_request(
    scene: Scene, /
) -> None:
    reader, writer = await scene.connect()
    writer.write(b"POST /hook HTTP/1.1\r\nHost: x\r\n")
    second, more = await scene.connect()
    more.write(head({}, "/nothing", "GET"))
    await second.readuntil(b"\r\n\r\n")
    more.write(b"POST /hook HTTP/1.1\r\nHo")
    async with asyncio.timeout(60):
        assert await reader.read() == b""
        await second.read()
    writer.close()
    more.close()
    while scene.door.open:
        await asyncio.sleep(0.01)


async def test_a_new_connection_closes_the_oldest_one_that_waits(scene: Scene, /) -> None:
    crowd = [await scene.connect() for _ in range(40)]
    while len(scene.door.open) < 40:
        await asyncio.sleep(0.01)
    body = body_of(GITHUB)
    assert (await scene.send(head(right(body)), body))[0] == 202
    with suppress(ConnectionError):
        assert await crowd[0][0].read() == b""
    assert not any(reader.at_eof() for reader, _ in crowd[1:])
    for _, writer in crowd:
        writer.close()
    while scene.door.open:
        await asyncio.sleep(0.01)


async def test_without_a_header_that_proves_anything_no_body_is_waited_for(scene: Scene, /) -> None:
    status, result = await scene.send(head({"Content-Length": "1000"}), b"{")
    assert (status, result["result"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("headers", "hashes"), [({}, 0), ({"X-Signature": "sha256="}, 0), (None, 3)]
)
def test_each_distinct_secret_hashes_a_body_once_and_none_does_without_a_signature(
    headers: dict[str, str] | None, hashes: int
) -> None:
    digests = webhook_payloads.Digests(b"body")
    for secrets in ([b"a", b"common"], [b"b", b"common"], [b"common"]):  # of three repositories
        assert (
            webhook_payloads.proof(FORGED if headers is None else headers, digests, secrets, 0.0)
            is None
        )
    assert digests.made == hashes
