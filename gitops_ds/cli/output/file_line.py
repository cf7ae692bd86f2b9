"""The file that a long check processes now, as one line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from gitops_ds.model import plain_text, progress

BEGIN, EVERY = 1.0, 0.1  # seconds until the line is shown, and between two of its texts
_ERASE = "\r\x1b[K"


class FileLine:
    """A line that is overwritten in place, without a thread, because `check` forks."""

    def __init__(self, stream: TextIO, width: int, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._stream, self._width, self._clock = stream, width, clock
        self._began = clock()
        self._next = self._began + BEGIN

    def show(self, file: str) -> None:
        """Shows a file, if it is time for another text."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + EVERY
        text = f"checking, {now - self._began:.0f} s: {plain_text.line(file)}"
        self._stream.write(_ERASE + text[: self._width - 1])
        self._stream.flush()

    def erase(self) -> None:
        """Removes the line."""
        if self._next > self._began + BEGIN:
            self._stream.write(_ERASE)
            self._stream.flush()


@contextmanager
def shown(
    stream: TextIO, width: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Shows the files that are processed in this context."""
    line = FileLine(stream, width, clock)
    token = progress.listener.set(line.show)
    try:
        yield
    finally:
        progress.listener.reset(token)
        line.erase()
