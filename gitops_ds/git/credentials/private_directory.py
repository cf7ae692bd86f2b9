"""A directory for credential files of git: mode 0700, removed on exit.

The next process removes the directory of a killed one: the kernel releases the lock of a dead
process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from gitops_ds.git import directory_lock
from gitops_ds.git.directory_lock import LockResult

_PREFIX = "access-"


class PrivateDirectory:
    """A new directory in the cache directory; removes those of dead processes first. Raises
    OSError.
    """

    def __init__(self, cache: Path) -> None:
        # With the lock of the cache, creation and locking are atomic for the sweep of another
        # process.
        with directory_lock.held(cache):
            _sweep(cache)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=cache))
            self._held: int | None = os.open(self.path, os.O_RDONLY)
            directory_lock.lock(self._held)

    def remove(self) -> None:
        """Deletes it from the disk."""
        held, self._held = self._held, None
        if held is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(held)


def _sweep(cache: Path) -> None:
    for old in cache.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), directory_lock.opened(old) as one:
            if directory_lock.lock(one, wait=False) is LockResult.LOCKED:
                shutil.rmtree(old)
