"""Locks on directories between processes: the kernel releases the lock of a dead process.

A file system without such locks has none (NFS locks no directory: flock(2), "NFS details"): callers
go on without, and must not conclude that no other process works there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from pathlib import Path


class LockResult(Enum):
    """BUSY: another process has the lock. UNSUPPORTED: the file system has no locks."""

    LOCKED = auto()
    BUSY = auto()
    UNSUPPORTED = auto()


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


def lock(number: int, *, wait: bool = True) -> LockResult:
    """Locks an open directory until `number` is closed; BUSY only if `wait` is not set."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return LockResult.BUSY
    except OSError:
        return LockResult.UNSUPPORTED
    return LockResult.LOCKED


def left_by_killed(result: LockResult, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The lock files that belong to no living process; none if one could work there."""
    return tuple(paths) if result is LockResult.LOCKED else ()
