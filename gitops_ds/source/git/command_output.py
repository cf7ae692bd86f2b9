"""Reads what a git command prints, with a limit: a repository, or its server, decides how much that
is.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import IO, Final

_PIECE: Final = 1 << 16
_LAST_ERRORS: Final = 1 << 16  # bytes of the end of stderr: git's own message is the last one


class OutputTooLong(Exception):
    """A command printed more than the limit."""


def read(process: subprocess.Popen[bytes], seconds: float, most: int) -> tuple[bytes, bytes]:
    """The stdout of a process, and the end of its stderr, when it has ended.

    Raises TimeoutExpired, and OutputTooLong for more than `most` bytes of stdout.
    """
    until = time.monotonic() + seconds
    stdout, stderr = bytearray(), bytearray()
    with selectors.DefaultSelector() as ready:
        for pipe, into in ((process.stdout, stdout), (process.stderr, stderr)):
            if pipe is not None:
                ready.register(pipe, selectors.EVENT_READ, into)
        while ready.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, seconds)
            for key, _ in ready.select(left):
                if not _take(key.fileobj, key.data):
                    ready.unregister(key.fileobj)
            if len(stdout) > most:
                raise OutputTooLong
            del stderr[:-_LAST_ERRORS]
    process.wait(max(0.0, until - time.monotonic()))
    return bytes(stdout), bytes(stderr)


def _take(pipe: int | IO[bytes] | object, into: bytearray) -> bool:
    """Appends what a pipe has now; False at its end."""
    assert hasattr(pipe, "fileno")
    piece = os.read(pipe.fileno(), _PIECE)
    into += piece
    return bool(piece)
