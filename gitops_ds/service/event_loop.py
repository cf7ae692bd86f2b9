"""The event loop of the service: that of uvloop if installed, which takes a sixth less CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The function that makes the loop; None for asyncio's own, as on Windows."""
    try:
        import uvloop
    except ImportError:
        return None

    def new() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        loop.set_exception_handler(report)
        return loop

    return new


def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an error of a callback, except that of a closed TLS connection.

    uvloop still decrypts what had arrived when the connection was closed, fails to answer on the
    closed transport, and reports that as fatal (`SSLProtocol._do_read` in uvloop/sslproto.pyx). A
    transport whose handle is closed does not always say so (`_ensure_alive` in handles/handle.pyx).
    """
    transport, error = context.get("transport"), context.get("exception")
    closed = transport is not None and transport.is_closing()
    closed |= isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")
    if closed and context.get("message") == "Fatal error on SSL protocol":
        return
    loop.default_exception_handler(context)
