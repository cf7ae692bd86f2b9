"""The journal on disk: files of lines; one is being written, the oldest are removed.

A file ends when its differences have filled its share of the journal, or after a day; every process
begins a new one. A disk error does not stop reconciliations and is reported once: the next attempt
is later, in a new file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gitops_ds.controller.journal import codec
from gitops_ds.model.events.base import (
    Decided,
    Emit,
    Event,
    JournalFailed,
    JournalRecovered,
)

PATTERN = "journal-*.jsonl"
DAY = 86400.0  # seconds
RETRY_AFTER = 30.0  # seconds
SHARES = 8  # the approximate number of files of a full journal
MOST_FILES = 100  # a service that restarts repeatedly writes many small ones


class JournalLimits(msgspec.Struct, frozen=True):
    """The limits of the journal: bytes and days. The file being written is kept, regardless of its
    size.
    """

    bytes: int = 256 * 2**20
    days: int = 7


class Journal:
    """Writes every reconciliation to `directory`; its own errors are emitted.

    Only their owner can read the files, since a pod template can contain secrets. A line is written
    to the operating system before `handle` returns, so that a kill loses no line.
    """

    def __init__(self, directory: Path, limits: JournalLimits, emit: Emit) -> None:
        self._directory, self._limits, self._emit = directory, limits, emit
        self._file: _File | None = None
        self._missing = 0
        self._failed_at = 0.0

    def handle(self, event: Event) -> None:
        """Writes a reconciliation; other events are ignored."""
        if not isinstance(event, Decided):
            return
        if self._missing and 0 <= event.at - self._failed_at < RETRY_AFTER:
            self._missing += 1
            return
        try:
            self._write(event)
        except OSError as error:
            self.close()
            if not self._missing:
                self._emit(JournalFailed(event.at, f"{self._directory}: {error.strerror or error}"))
            self._missing += 1
            self._failed_at = event.at
        else:
            if self._missing:
                self._emit(JournalRecovered(event.at, self._missing))
            self._missing = 0

    def close(self) -> None:
        """Ends the file, and removes one without a complete reconciliation."""
        if self._file is not None:
            self._file.end()
            self._file = None

    def _write(self, event: Decided) -> None:
        file = self._file
        if file is not None and (
            file.differences > self._limits.bytes / SHARES or not 0 <= event.at - file.begun < DAY
        ):
            self.close()
            file = None
        if file is None:
            file = self._file = _begun(self._directory, event.at)
            self._remove_oldest(event.at)
        file.write(event)

    def _remove_oldest(self, now: float) -> None:
        """Keeps the newest files within the limits, with space for the file just begun."""
        left = self._limits.bytes * (1 - 1 / SHARES)
        for index, file in enumerate(reversed(files(self._directory))):
            with contextlib.suppress(OSError):
                stat = file.stat()
                left -= stat.st_size
                if index and (
                    index >= MOST_FILES or left < 0 or now - stat.st_mtime > self._limits.days * DAY
                ):
                    file.unlink()


@dataclass(slots=True)
class _File:
    """The file being written: the time of its start, the number of complete reconciliations in it,
    and the bytes of differences.
    """

    path: Path
    handle: int
    begun: float
    writer: codec.JournalWriter = field(default_factory=codec.JournalWriter)
    turns: int = 0
    differences: int = 0

    def write(self, event: Decided) -> None:
        line, whole = self.writer.line(event)
        _write_all(self.handle, line if self.turns else codec.head() + line)
        self.turns += 1
        if not whole:
            self.differences += len(line)

    def end(self) -> None:
        os.close(self.handle)
        if not self.turns:
            with contextlib.suppress(OSError):
                self.path.unlink()


def files(directory: Path) -> list[Path]:
    """The files of a journal, oldest first. Raises OSError."""
    return sorted(directory.glob(PATTERN), key=lambda file: (_number(file), file.name))


def _number(file: Path) -> int:
    text = file.stem.partition("-")[2]
    return int(text) if text.isdecimal() else 0


def _begun(directory: Path, now: float) -> _File:
    """A new file with the next number; another process may have used that number."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = max(map(_number, files(directory)), default=0)
    while True:
        number += 1
        path = directory / f"journal-{number:06d}.jsonl"
        with contextlib.suppress(FileExistsError):
            return _File(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), now)


def _write_all(handle: int, data: bytes) -> None:
    """Writes all bytes; an almost full disk first accepts a part."""
    while data:
        data = data[os.write(handle, data) :]
