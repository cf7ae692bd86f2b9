"""Notes on disk of unfinished work: work that ends the process is not repeated indefinitely.

The directory is in the cache, which outlives a container but not its pod. It may disappear or fail
at any time.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

KEPT = 3600.0  # seconds
MOST = 2  # attempts: the loss of a node may have ended one


def begin(directory: Path, key: str) -> bool:
    """Notes an attempt; False after too many unfinished ones."""
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
    """Removes the note of an attempt that has ended."""
    with contextlib.suppress(OSError):
        (directory / key).unlink()
