"""The web server of the service, from the lists of routes of its parts."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast
from urllib.parse import urlsplit

from aiohttp import http_exceptions, typedefs, web

from gitops_ds.core.errors import UsageError
from gitops_ds.notify.metrics import Metrics
from gitops_ds.service.web.connections import ConnectionLimiter


def _is_of_the_service(record: logging.LogRecord) -> bool:
    """Whether a line of aiohttp is about the service: without a secret a client could fill the log
    with the tracebacks of its invalid requests and of the connections that it closes.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, http_exceptions.HttpProcessingError | ConnectionError)


LOGGER = logging.getLogger("gitops_ds.service.web")
LOGGER.addFilter(_is_of_the_service)


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


EXPOSITION_SECONDS = 1.0  # that a text of the metrics is served
Routes = Sequence[web.AbstractRouteDef]
RouteDef = web.RouteDef


async def serve(
    address: str,
    *routes: Iterable[web.AbstractRouteDef],
    signed: Iterable[RouteDef] = (),
    any_host: bool = False,
    door: ConnectionLimiter | None = None,
    option: str = "--listen",
) -> web.AppRunner:
    """Serves on HOST:PORT until the runner is cleaned up. Raises UsageError for an unusable
    address.

    Without `any_host` a request must name localhost or an address as its host, except to `signed`
    routes, whose requests prove their sender.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"{option} {address}: write HOST:PORT or :PORT")
    door, signed = door or ConnectionLimiter(), tuple(signed)
    middlewares = [door.middleware]
    if not any_host:
        middlewares.append(_by_address(frozenset(route.handler for route in signed)))
    app = web.Application(middlewares=middlewares)
    for some in (signed, *routes):
        app.add_routes(some)
    runner = web.AppRunner(
        app, access_log=None, logger=LOGGER, shutdown_timeout=1.0, lingering_time=1.0
    )
    await runner.setup()
    try:
        await Site(runner, door, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"{option} {address}: {error.strerror}") from None
    return runner


def _by_address(signed: frozenset[object]) -> typedefs.Middleware:
    """Refuses host names. DNS rebinding: the name of an attacker may resolve to this address, so
    that the attacker's page in a browser on this machine could read this server.
    """

    @web.middleware
    async def check(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if request.match_info.handler in signed or names_address(request.host):
            return await handler(request)
        why = f"open access requires localhost or an IP address, not the name {request.host[:80]}"
        return web.Response(status=403, text=f"{why}\n")

    return check


def names_address(host: str) -> bool:
    """Whether the host of a request is localhost or an IP address, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name.endswith(".localhost"):
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def probe_door() -> ConnectionLimiter:
    """The limiter for the listener of the probes: the kubelet opens one connection for each."""
    return ConnectionLimiter(connections=128)


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
    """/metrics, for Prometheus. All requests of a second have the same text: it requires no
    authentication, and takes time that grows with the number of agents.
    """
    made, text = -math.inf, b""

    async def answer(_: web.Request) -> web.Response:
        nonlocal made, text
        if (now := asyncio.get_running_loop().time()) - made >= EXPOSITION_SECONDS:
            made, text = now, metrics.text()
        return web.Response(body=text, content_type="text/plain", charset="utf-8")

    return [web.get("/metrics", answer)]
