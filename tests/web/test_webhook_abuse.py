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

from gitops_ds.model.deployer_state import Push
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.requests import WebhookReceived, WebhookResult
from gitops_ds.model.rate_limits import TokenBucket
from gitops_ds.web import server, webhook_payloads, webhooks
from tests.web.test_webhooks import GITHUB, SECRET, body_of, headers_of

CAP = 4096


@dataclass
class Scene:
    port: int
    door: server.ConnectionLimiter
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
    script: Callable[[Scene], Awaitable[None]], *, connections: int = 40, patience: float = 30.0
) -> None:
    async def main() -> None:
        async with served(connections, patience) as scene:
            await script(scene)

    asyncio.run(main())


@asynccontextmanager
async def served(connections: int, patience: float) -> AsyncIterator[Scene]:
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
        body_seconds=patience,
    )
    door = server.ConnectionLimiter(connections, patience)
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


async def test_a_crowd_is_turned_away_at_the_door_and_there_is_room_again_when_it_left(
    scene: Scene, /
) -> None:
    crowd = [await scene.connect() for _ in range(40)]
    while len(scene.door.open) < 40:
        await asyncio.sleep(0.01)
    reader, writer = await scene.connect()
    with suppress(ConnectionError):
        assert await reader.read() == b""
    assert len(scene.door.open) == 40  # no open connection was closed meanwhile
    writer.close()
    for _, one in crowd:
        one.close()
    while scene.door.open:
        await asyncio.sleep(0.01)
    body = body_of(GITHUB)
    assert (await scene.send(head(right(body)), body))[0] == 202


async def test_many_bodies_at_once_are_bounded(scene: Scene, /) -> None:
    crowd = [await scene.connect() for _ in range(webhooks.AT_ONCE)]
    for _, writer in crowd:
        writer.write(head({"Content-Length": "10", **FORGED}))
        await writer.drain()
    while scene.hooks.at_once < webhooks.AT_ONCE:
        await asyncio.sleep(0.01)
    assert (await scene.send(head({"Content-Length": "2"}), b"{}"))[0] == 503
    for _, writer in crowd:
        writer.close()


async def test_without_a_header_that_proves_anything_no_body_is_waited_for(scene: Scene, /) -> None:
    status, result = await scene.send(head({"Content-Length": "1000"}), b"{")
    assert (status, result["result"]) == (401, "unauthorized")


async def test_forged_bodies_are_limited_by_their_bytes(scene: Scene, /) -> None:
    scene.hooks._bytes = TokenBucket(CAP * 3, 0.0)
    body = b"x" * CAP
    answers = [
        (await scene.send(head({"Content-Length": str(CAP), **FORGED}), body))[0] for _ in range(5)
    ]
    assert answers == [401, 401, 401, 429, 429]


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


def test_one_address_cannot_take_all_connections() -> None:
    door = server.ConnectionLimiter(connections=10, per_peer=3)
    guards = [server._Guarded(asyncio.Protocol(), door) for _ in range(4)]
    for guard in guards[:3]:
        assert door.admits("10.0.0.1")
        door.enter(guard, "10.0.0.1")
    assert not door.admits("10.0.0.1")
    assert door.admits("10.0.0.2")
    door.leave(guards[3], "10.0.0.1")  # one that was not let in
    assert not door.admits("10.0.0.1")
    door.leave(guards[0], "10.0.0.1")
    assert door.admits("10.0.0.1")


async def test_a_flood_of_forgeries_is_limited(scene: Scene, /) -> None:
    seen = {(await scene.send(head({"Content-Length": "2"}), b"{}"))[0] for _ in range(400)}
    assert 401 in seen
    assert seen <= {401, 429}
