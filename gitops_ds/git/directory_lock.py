"""Locks on directories between processes: the kernel releases the lock of a dead process.

A file system without such locks (some network mounts) has none: callers go on without.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Waits for the lock and holds it. Raises OSError if the directory can't be opened."""
    with opened(directory) as number:
        lock(number)
        yield


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A file descriptor of the directory. Raises OSError."""
    number = os.open(directory, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def lock(number: int, *, wait: bool = True) -> bool:
    """Locks an open directory until `number` is closed. False: another process has the lock, and
    `wait` is not set.
    """
    try:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
