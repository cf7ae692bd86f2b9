"""Servers for tests: of the standard library in a separate thread, or of aiohttp in the loop of the
test.
"""

from __future__ import annotations

import contextlib
import socketserver
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from aiohttp import web

POLL_SECONDS = 0.02  # the end of a server takes as long; the default is 0.5


class ServerThread:
    """Serves from its creation until `stop`, or until the end of a `with` block."""

    def __init__(self, server: socketserver.BaseServer) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": POLL_SECONDS}, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the server, and closes its socket."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass(frozen=True)
class Reply:
    """An HTTP response; its length is added."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


# The response to a request and its body; None: the function wrote one itself, or sends none.
Answer = Callable[[BaseHTTPRequestHandler, bytes], Reply | None]


def http_handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    """Answers each method with the function, and logs nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            if reply is None:
                return
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(OSError):  # the client has read enough
                    self.wfile.write(reply.body)

        # The names are http.server's.
        do_DELETE = do_HEAD = do_PATCH = do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def http_server(answer: Answer) -> Iterator[str]:
    """The URL of a server that answers with the function."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), http_handler(answer))
    with ServerThread(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextlib.asynccontextmanager
async def serving(
    app: web.Application, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[str]:
    """The URL of the application; `options` are those of its `AppRunner`."""
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
