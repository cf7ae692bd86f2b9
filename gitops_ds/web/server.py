"""The web server of the service, from the lists of routes of its parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from aiohttp import web

from gitops_ds.errors import UsageError
from gitops_ds.telemetry.metrics import Metrics
from gitops_ds.web import connection_limits

Routes = Sequence[web.AbstractRouteDef]


async def serve(
    address: str,
    *routes: Iterable[web.AbstractRouteDef],
    door: connection_limits.ConnectionLimiter | None = None,
    option: str = "--listen",
) -> web.AppRunner:
    """Serves on HOST:PORT until the runner is cleaned up. Raises UsageError for an unusable
    address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"{option} {address}: write HOST:PORT or :PORT")
    door = door or connection_limits.ConnectionLimiter()
    app = web.Application(middlewares=[door.middleware])
    for some in routes:
        app.add_routes(some)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, lingering_time=1.0)
    await runner.setup()
    try:
        await connection_limits.Site(runner, door, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"{option} {address}: {error.strerror}") from None
    return runner


def probe_door() -> connection_limits.ConnectionLimiter:
    """The limiter for the listener of the probes: the kubelet opens one connection for each."""
    return connection_limits.ConnectionLimiter(connections=128, per_peer=16)


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
