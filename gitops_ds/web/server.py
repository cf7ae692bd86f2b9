"""The web server of the service, from the lists of routes of its parts. It limits the number of
connections, and the time that one may be idle.

aiohttp waits indefinitely for the end of a request's head, and has no limit of connections:
https://github.com/aio-libs/aiohttp/issues/5386
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from aiohttp import typedefs, web

from gitops_ds.errors import UsageError
from gitops_ds.telemetry.metrics import Metrics

CONNECTIONS = 500
PER_PEER = 100  # a browser opens six; a proxy has many clients
HEAD_SECONDS = 15.0
ANSWER_SECONDS = 60.0


class ConnectionLimiter:
    """Limits the connections of one server, in total and per address, and closes those that wait
    too long for a complete request.
    """

    def __init__(
        self,
        connections: int = CONNECTIONS,
        head_seconds: float = HEAD_SECONDS,
        per_peer: int = PER_PEER,
    ) -> None:
        self.connections, self.head_seconds, self.per_peer = connections, head_seconds, per_peer
        self.open: set[_Guarded] = set()
        self.of_peer: Counter[str] = Counter()

    def admits(self, peer: str) -> bool:
        """Whether one more connection of this address is allowed."""
        return len(self.open) < self.connections and self.of_peer[peer] < self.per_peer

    def enter(self, guarded: _Guarded, peer: str) -> None:
        """Counts a connection until `leave`."""
        self.open.add(guarded)
        self.of_peer[peer] += 1

    def leave(self, guarded: _Guarded, peer: str) -> None:
        """Ends the count of a connection; no effect for a rejected one."""
        if guarded in self.open:
            self.open.discard(guarded)
            self.of_peer[peer] -= 1
            if self.of_peer[peer] <= 0:
                del self.of_peer[peer]

    def guarded(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """A new connection."""
        return _Guarded(inner, self)

    @property
    def middleware(self) -> typedefs.Middleware:
        """Suspends the idle timeout during a request: the event stream of a page lasts for days."""

        @web.middleware
        async def busy(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
            guard = request.transport.get_protocol() if request.transport else None
            if not isinstance(guard, _Guarded):
                return await handler(request)
            guard.busy()
            try:
                return await handler(request)
            finally:
                guard.idle()

        return busy


class Site(web.BaseSite):
    """A site of a runner with a connection limiter, whose `middleware` the application must have;
    it ends with the runner.
    """

    def __init__(
        self, runner: web.AppRunner, door: ConnectionLimiter, host: str | None, port: int
    ) -> None:
        super().__init__(runner)
        self._door, self._host, self._port = door, host, port

    @property
    def name(self) -> str:
        """Its URL."""
        return f"http://{self._host or '0.0.0.0'}:{self.port}"  # noqa: S104  only a name

    @property
    def port(self) -> int:
        """The port; of port 0 the assigned one."""
        # uvloop's servers are not an asyncio.Server
        sockets = getattr(self._server, "sockets", None)
        return int(sockets[0].getsockname()[1]) if sockets else self._port

    async def start(self) -> None:
        """Starts to accept connections. Raises OSError."""
        await super().start()
        make = cast("Callable[[], asyncio.Protocol]", self._runner.server)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._door.guarded(make()), self._host, self._port, backlog=128
        )


class _Guarded(asyncio.Protocol):
    """One connection: aiohttp's protocol plus an idle timeout."""

    def __init__(self, inner: asyncio.Protocol, door: ConnectionLimiter) -> None:
        self._inner, self._door = inner, door
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None
        self._refused = False
        self._peer = ""

    def busy(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def idle(self) -> None:
        self.busy()
        if self._transport is not None and not self._transport.is_closing():
            self._end = asyncio.get_running_loop().call_later(self._door.head_seconds, self._close)

    def _close(self) -> None:
        """Closes the connection; a response that is still being read is aborted after a timeout."""
        assert self._transport is not None
        self._transport.close()
        self._end = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._transport.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self._peer = str(name[0]) if isinstance(name, tuple) and name else ""
        if not self._door.admits(self._peer):
            self._refused = True
            self._transport.abort()
            return
        self._door.enter(self, self._peer)
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
        self.busy()
        self._door.leave(self, self._peer)
        if not self._refused:
            self._inner.connection_lost(exc)


Routes = Sequence[web.AbstractRouteDef]


async def serve(
    address: str,
    *routes: Iterable[web.AbstractRouteDef],
    door: ConnectionLimiter | None = None,
    option: str = "--listen",
) -> web.AppRunner:
    """Serves on HOST:PORT until the runner is cleaned up. Raises UsageError for an unusable
    address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"{option} {address}: write HOST:PORT or :PORT")
    door = door or ConnectionLimiter()
    app = web.Application(middlewares=[door.middleware])
    for some in routes:
        app.add_routes(some)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, lingering_time=1.0)
    await runner.setup()
    try:
        await Site(runner, door, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"{option} {address}: {error.strerror}") from None
    return runner


def probe_door() -> ConnectionLimiter:
    """The limiter for the listener of the probes: the kubelet opens one connection for each."""
    return ConnectionLimiter(connections=128, per_peer=16)


def probes(stuck: Callable[[], str], unready: Callable[[], str]) -> Routes:
    """/healthz, /livez and /readyz. Each callable returns the reason of a failure, or an empty
    text.
    """

    def answers(
        why_not: Callable[[], str],
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_: web.Request) -> web.Response:
            why = why_not()
            return web.Response(status=503, text=f"{why}\n") if why else web.Response(text="ok\n")

        return answer

    healthz = answers(stuck)
    return [
        web.get("/healthz", healthz),
        web.get("/livez", healthz),
        web.get("/readyz", answers(unready)),
    ]


def exposition(metrics: Metrics) -> Routes:
    """/metrics, for Prometheus."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), content_type="text/plain", charset="utf-8")

    return [web.get("/metrics", answer)]
