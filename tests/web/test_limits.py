"""No client without a secret delays another one: a signed delivery, a right token, a scrape, a
probe. The server is that of the service, on real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops_ds.core.deployer_state import Push
from gitops_ds.core.health import AgentStatus
from gitops_ds.notify.metrics import Metrics, MetricsSource
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.listen import ListenSettings
from gitops_ds.service.web import connections, server, webhooks
from gitops_ds.service.web.page import routes
from gitops_ds.service.web.page.access import AccessKind, PageGuard, PageToken
from tests.page import fleets
from tests.web import attacks
from tests.web.test_webhook_abuse import right
from tests.web.test_webhooks import GITHUB, SECRET, body_of

TOKEN = "0123456789abcdef"
PROXY = {"access": "proxy", "trustedProxies": ["127.0.0.1"]}
SECONDS = 5.0  # a body may take ten seconds, and a head fifteen
SIX = [f"127.0.1.{number}" for number in range(6)]


@dataclass
class Scene:
    """The service with a webhook and a page for users with a token."""

    port: int
    door: connections.ConnectionLimiter
    hooks: webhooks.Hooks
    woken: list[Push]
    sent = 0

    async def served(self, address: str) -> list[int]:
        """The statuses of a scrape, a probe, a page, a sign-in and a signed delivery, one after
        the other.
        """
        self.sent += 1
        body = body_of({**GITHUB, "number": self.sent})
        signed = {**right(body), "X-GitHub-Delivery": f"{self.sent}"}
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        requests: Sequence[tuple[bytes, ...]] = [
            (attacks.head({}, "/metrics", "GET"),),
            (attacks.head({}, "/readyz", "GET"),),
            (attacks.head(bearer, "/nodes", "GET"),),
            attacks.sign_in(TOKEN),
            (attacks.head(signed), body),
        ]
        async with asyncio.timeout(SECONDS):
            return [
                await attacks.send(self.port, *request, address=address) for request in requests
            ]


ALL = [200, 200, 200, 303, 202]


def play(script: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with service(Path(directory) / "token") as scene:
                await script(scene)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def service(file: Path) -> AsyncIterator[Scene]:
    file.write_text(TOKEN)
    woken: list[Push] = []
    addresses = ("https://git.example.com/platform/node-agents",)
    target = webhooks.WebhookTarget("agents", addresses, "main", lambda: (SECRET,), woken.append)
    clock = asyncio.get_running_loop().time
    hooks = webhooks.Hooks(lambda: [target], lambda _: None, clock)
    door = connections.ConnectionLimiter()
    guard = PageGuard(AccessKind.TOKEN, PageToken(file))
    runner = await server.serve(
        "127.0.0.1:0",
        server.probes(lambda: "", lambda: ""),
        server.exposition(Metrics(MetricsSource())),
        routes.routes(fleets.story(20), guard),
        signed=hooks.routes(),
        any_host=True,
        door=door,
    )
    try:
        yield Scene(int(runner.addresses[0][1]), door, hooks, woken)
    finally:
        await runner.cleanup()


STARTS = {
    "half a request": attacks.half_request(),
    "a slow delivery": attacks.slow_delivery(),
    "a slow form": attacks.slow_form(),
}


@pytest.mark.parametrize("start", STARTS)
async def test_more_connections_than_the_limit_without_a_complete_request_delay_no_address(
    scene: Scene, /, start: str
) -> None:
    """Neither another address than theirs nor one of them, such as a proxy. The limit is a tenth of
    the default: a slow machine opens 600 connections in more than the ten seconds of a body.
    """
    limit = scene.door.connections = connections.CONNECTIONS // 10
    async with attacks.held(scene.port, SIX, limit // 5, STARTS[start]):
        while len(scene.door.open) < limit:
            await asyncio.sleep(0.01)
        for address in ("127.0.0.9", SIX[0], SIX[5]):
            assert await scene.served(address) == ALL
        assert len(scene.door.open) <= limit


async def test_40_slow_deliveries_without_the_secret_delay_no_signed_one(scene: Scene, /) -> None:
    async with attacks.held(scene.port, ["127.0.0.1"], 40, attacks.slow_delivery()) as crowd:
        while scene.hooks.bodies.held < 40:
            await asyncio.sleep(0.01)
        for address in ("127.0.0.9", "127.0.0.1"):
            assert (await scene.served(address))[-1] == 202
        assert scene.hooks.bodies.held == len(crowd)  # none of them was ended for it
    assert len(scene.woken) == 2


async def test_forged_deliveries_do_not_count_for_signed_ones(scene: Scene, /) -> None:
    for request in [*attacks.forged_deliveries(300), *attacks.forged_deliveries(20, 1 << 20)]:
        assert await attacks.send(scene.port, *request) == 401
    assert (await scene.served("127.0.0.1"))[-1] == 202


async def test_the_right_token_is_accepted_after_any_number_of_wrong_ones(scene: Scene, /) -> None:
    """All users of a proxy have its address."""
    answers = [await attacks.send(scene.port, *token) for token in attacks.wrong_tokens(40)]
    assert set(answers) == {401, 403}
    assert await scene.served("127.0.0.1") == ALL


async def test_a_replay_does_not_count_for_new_deliveries(scene: Scene, /) -> None:
    body = body_of(GITHUB)
    replay = attacks.head(right(body)), body
    answers = [await attacks.send(scene.port, *replay) for _ in range(100)]
    assert answers == [202] + [409] * 99
    assert (await scene.served("127.0.0.1"))[-1] == 202


def almost(size: int) -> bytes:
    """A forged delivery that lacks its last byte."""
    return attacks.head({**attacks.FORGED, "Content-Length": str(size)}) + b"x" * (size - 1)


async def test_bodies_are_held_in_bounded_memory_and_the_oldest_of_the_largest_peer_ends(
    scene: Scene, /
) -> None:
    bodies = scene.hooks.bodies
    async with (
        attacks.held(scene.port, ["127.0.1.1"], 2, almost(1 << 20)) as few,
        attacks.held(scene.port, ["127.0.1.2"], 60, almost(1 << 20)) as many,
    ):
        async with asyncio.timeout(SECONDS):
            for reader, _ in many[:30]:
                assert b" 503 " in await reader.readline()
        assert bodies.held <= bodies.most
        for address in ("127.0.0.9", "127.0.1.2"):
            assert (await scene.served(address))[-1] == 202
        few[0][1].write(b"x")
        assert b" 401 " in await few[0][0].readline()
    while bodies.held:
        await asyncio.sleep(0.01)


async def test_a_signed_delivery_of_the_largest_size_passes_while_the_memory_is_full(
    scene: Scene, /
) -> None:
    body = body_of(GITHUB)
    body += b" " * ((1 << 20) - len(body))
    async with attacks.held(scene.port, ["127.0.0.1"], 40, almost(1 << 20)) as crowd:
        async with asyncio.timeout(SECONDS):
            assert b" 503 " in await crowd[0][0].readline()
            assert await attacks.send(scene.port, attacks.head(right(body)), body) == 202


async def test_only_connections_without_a_complete_request_are_closed_for_new_ones(
    scene: Scene, /
) -> None:
    scene.door.connections = 10
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    stream = attacks.head(bearer, "/live?of=", "GET")
    async with attacks.held(scene.port, ["127.0.0.1"], 9, stream) as streams:
        for reader, _ in streams:
            assert b" 200 " in await reader.readline()
        async with attacks.held(scene.port, SIX, 3, attacks.half_request()):
            assert await scene.served("127.0.0.9") == ALL
        assert not any(reader.at_eof() for reader, _ in streams)


async def test_the_address_with_the_most_waiting_connections_loses_its_oldest(
    scene: Scene, /
) -> None:
    scene.door.connections, start = 10, attacks.half_request()
    async with (
        attacks.held(scene.port, ["127.0.1.1"], 1, start) as slow,
        attacks.held(scene.port, ["127.0.1.2"], 20, start) as crowd,
    ):
        async with asyncio.timeout(SECONDS):
            for reader, _ in crowd[:11]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            slow[0][1].write(b"Slow: true\r\n\r\n")
            assert b" 200 " in await slow[0][0].readline()
        assert not any(reader.at_eof() for reader, _ in crowd[11:])


@pytest.mark.parametrize(
    ("peer", "share"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_all_addresses_of_one_ipv6_host_are_one_peer(peer: str, share: str) -> None:
    assert connections.share_of(peer) == share


REBOUND = "evil.example.com", "127.0.0.1.evil.example.com", "localhost.evil.example.com", "[", ""
LOCAL = "127.0.0.1:8080", "localhost:8080", "page.localhost", "[::1]:8080", "10.0.0.7"


@pytest.mark.parametrize("path", ["/", "/nodes", "/metrics", "/readyz", "/livez", "/live", "/none"])
def test_a_site_cannot_read_an_open_listener_through_a_name_for_this_machine(path: str) -> None:
    async def statuses(hosts: Sequence[str], any_host: bool) -> set[int]:
        runner = await server.serve(
            "127.0.0.1:0",
            server.probes(lambda: "", lambda: ""),
            server.exposition(Metrics(MetricsSource())),
            routes.routes(fleets.story(20), PageGuard()),
            any_host=any_host,
        )
        port = int(runner.addresses[0][1])
        request = f"GET {path} HTTP/1.1\r\nHost: {{}}\r\n\r\n"
        try:
            return {await attacks.send(port, request.format(host).encode()) for host in hosts}
        finally:
            await runner.cleanup()

    async def main() -> None:
        allowed = {404} if path == "/none" else {200}
        assert await statuses(REBOUND, any_host=False) == {403}
        assert await statuses(LOCAL, any_host=False) == allowed
        assert await statuses(REBOUND[:3], any_host=True) == allowed

    asyncio.run(main())


def test_a_signed_delivery_may_name_any_host(tmp_path: Path) -> None:
    """A proxy on the same machine passes the host of the forge's request."""

    async def main() -> None:
        async with service(tmp_path / "token") as scene:
            runner = await server.serve("127.0.0.1:0", signed=scene.hooks.routes())
            body = body_of(GITHUB)
            request = attacks.head(right(body)).replace(b"127.0.0.1", b"hooks.example.com")
            try:
                assert await attacks.send(int(runner.addresses[0][1]), request, body) == 202
            finally:
                await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("listen", "any_host"),
    [
        ({"address": "127.0.0.1:8080"}, False),
        ({"address": "[::1]:8080", "page": {"enabled": False}}, False),
        ({"address": "127.0.0.1:8080", "page": {"tokenFile": "/token"}}, True),
        ({"address": "127.0.0.1:8080", "page": PROXY}, True),
        ({"address": ":8080"}, True),
        ({"address": "10.0.0.7:8080", "page": {"enabled": False}}, True),
    ],
)
def test_hosts_are_checked_where_every_user_of_the_machine_may_read(
    listen: dict[str, object], any_host: bool
) -> None:
    assert decode(ListenSettings, listen).any_host is any_host


def test_scrapes_of_one_second_take_the_time_of_one() -> None:
    calls: list[float] = []

    def lines() -> Sequence[AgentStatus]:
        calls.append(time.monotonic())
        return ()

    async def main() -> None:
        metrics = Metrics(MetricsSource(agents=lines))
        runner = await server.serve("127.0.0.1:0", server.exposition(metrics))
        request = attacks.head({}, "/metrics", "GET")
        began = time.monotonic()
        for _ in range(50):
            assert await attacks.send(int(runner.addresses[0][1]), request) == 200
        assert len(calls) <= 1 + (time.monotonic() - began) / server.EXPOSITION_SECONDS
        await runner.cleanup()

    asyncio.run(main())


async def test_no_request_of_a_client_writes_a_traceback_to_the_log(
    scene: Scene, /, caplog: pytest.LogCaptureFixture
) -> None:
    invalid = attacks.head({"Content-Length": "1", "Transfer-Encoding": "chunked"})
    assert await attacks.send(scene.port, invalid) == 400
    async with attacks.held(scene.port, SIX, 2, attacks.slow_form()):
        await asyncio.sleep(0.1)
    async with attacks.held(scene.port, SIX, 2, attacks.slow_delivery()):
        await asyncio.sleep(0.1)
    assert await scene.served("127.0.0.1") == ALL
    assert [record.getMessage() for record in caplog.records] == []


def test_the_tracebacks_of_the_service_itself_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    server.LOGGER.error("Error handling request", exc_info=ValueError("no"))
    assert len(caplog.records) == 1
