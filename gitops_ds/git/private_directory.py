"""A directory for credentials that git must find on the disk: for our eyes, for as long as we live.

Whoever is killed can't clean up, so the next one does: the kernel lets go of the lock of a process
that is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "access-"


class PrivateDirectory:
    """A new directory in the cache directory, after those that dead processes left there were taken
    away. Raises OSError.
    """

    def __init__(self, cache: Path) -> None:
        # Another process sweeps between our making of it and our lock, unless the whole is one
        # step.
        with _opened(cache) as everybody:
            _lock(everybody, fcntl.LOCK_EX)
            _sweep(cache)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=cache))
            self._held: int | None = os.open(self.path, os.O_RDONLY)
            _lock(self._held, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Takes it off the disk."""
        held, self._held = self._held, None
        if held is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(held)


def _sweep(cache: Path) -> None:
    for old in cache.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _opened(old) as one:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    number = os.open(directory, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def _lock(number: int, how: int) -> None:
    """Not every file system locks directories: there nothing is swept, because sweeping needs the
    lock.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(number, how)
