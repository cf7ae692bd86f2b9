"""A server of the standard library in a separate thread."""

from __future__ import annotations

import socketserver
import threading
from types import TracebackType
from typing import Self

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
