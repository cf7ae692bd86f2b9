"""The allocator of the C library, for a process that runs for months."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3  # malloc.h
LARGE = 128 * 1024  # bytes: glibc's initial threshold


def return_large_blocks() -> None:
    """Returns each freed block of 128 KiB to the system at once.

    glibc raises this threshold to the size of the largest freed block. The pages of the first lists
    would then stay part of the heap, which objects that are kept divide: 25 MiB beside 1,000
    DaemonSets. Other C libraries have no such option.
    https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows names each library
        return
    mallopt(_M_MMAP_THRESHOLD, LARGE)
