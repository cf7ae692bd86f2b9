"""The allocator of the C library, for a process that runs for months."""

from __future__ import annotations

import ctypes

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
