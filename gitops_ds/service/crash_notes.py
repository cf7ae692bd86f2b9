"""Notes on disk of work that began and did not end: what may have ended the whole process is not
begun again and again.

The directory is the cache, which outlives a container and not its pod. It may be deleted, and may
fail, at any time.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

KEPT = 3600.0  # seconds
MOST = 2  # attempts: one may have been cut off by a node that went away


def begin(directory: Path, key: str) -> bool:
    """Notes an attempt; False when too many did not end."""
    note = directory / key
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.iterdir():
            with contextlib.suppress(OSError):
                if abs(time.time() - old.stat().st_mtime) > KEPT:
                    old.unlink()
        began = note.stat().st_size if note.exists() else 0
        if began >= MOST:
            return False
        with note.open("ab") as file:
            file.write(b".")
    except OSError:
        return True
    return True


def end(directory: Path, key: str) -> None:
    """The attempt ended, well or not."""
    with contextlib.suppress(OSError):
        (directory / key).unlink()
