"""The process of the service: its event loop, that of uvloop if installed, which takes a sixth less
CPU; and the allocator of the C library, for a process that runs for months.
"""

from __future__ import annotations

import asyncio
import ctypes
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


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGE = 272 * 1024  # bytes: just above the 256 KiB buffer of each TLS read of asyncio and uvloop


def return_large_blocks() -> None:
    """Returns each freed block of 272 KiB to the system at once, and keeps buffers of reads.

    glibc raises this threshold to the size of the largest freed block. The pages of the first lists
    would then remain in the heap, fragmented by remaining objects: 25 MiB with 1,000 DaemonSets,
    and half of that with 512 KiB. With glibc's initial 128 KiB, each TLS read maps and unmaps its
    buffer: 15 µs, more than to decrypt it. Other C libraries have no such options.
    https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows names each library
        return
    mallopt(_M_MMAP_THRESHOLD, LARGE)
    mallopt(_M_TRIM_THRESHOLD, 2 * LARGE)  # glibc's own ratio
