"""Locks on directories between processes: the kernel releases the lock of a dead process. By it,
the next process finds the private directories of a killed one.

A file system without such locks has none (NFS locks no directory: flock(2), "NFS details"): callers
go on without, and must not conclude that no other process works there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
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
    """The files that belong to no living process; none if one could work there."""
    return tuple(paths) if result is LockResult.LOCKED else ()


_PREFIX = "access-"


class PrivateDirectory:
    """A new directory in the cache directory for credential files, with mode 0700; removes those of
    dead processes first. Raises OSError.
    """

    def __init__(self, cache: Path) -> None:
        # With the lock of the cache, creation and locking are atomic for the sweep of another
        # process.
        with held(cache):
            _sweep(cache)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=cache))
            self._held: int | None = os.open(self.path, os.O_RDONLY)
            lock(self._held)

    def remove(self) -> None:
        """Deletes it from the disk."""
        held, self._held = self._held, None
        if held is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(held)


def _sweep(cache: Path) -> None:
    for old in cache.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), opened(old) as one:
            if lock(one, wait=False) is LockResult.LOCKED:
                shutil.rmtree(old)
