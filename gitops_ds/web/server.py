"""The service's small web face: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from gitops_ds.errors import UsageError
from gitops_ds.report.metrics import Metrics


async def serve(address: str, metrics: Metrics, ready: Callable[[], bool]) -> web.AppRunner:
    """Answers on HOST:PORT until the runner is cleaned up. Raises UsageError for an address that can't be taken."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"--listen {address}: write HOST:PORT or :PORT")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="the first pass is not over\n")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"--listen {address}: {error.strerror}") from None
    return runner
