"""The journal on disk: files of lines, one being written, the oldest removed.

A file ends when its differences have filled its share of the journal, or after a day; every process
begins a new one. No trouble with the disk stops the work or is told twice: what failed is tried
again later, in a new file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

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
TRY_AGAIN = 30.0  # seconds
SHARES = 8  # a full journal has about so many files
MOST_FILES = 100  # a service that is started again and again writes many small ones


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """How much is kept: bytes and days. The file being written always stays, whatever its size."""

    bytes: int = 256 * 2**20
    days: int = 7


class Journal:
    """Writes every turn that it hears of into `directory`; its own troubles go to `tell`.

    The files are for their owner alone, since a pod template can hold secrets. A line is handed to
    the operating system before `hear` returns, so that a kill loses nothing.
    """

    def __init__(self, directory: Path, limits: JournalLimits, tell: Emit) -> None:
        self._directory, self._limits, self._tell = directory, limits, tell
        self._file: _File | None = None
        self._missing = 0
        self._failed_at = 0.0

    def handle(self, told: Event) -> None:
        """Writes a turn; every other record is passed over."""
        if not isinstance(told, Decided):
            return
        if self._missing and 0 <= told.at - self._failed_at < TRY_AGAIN:
            self._missing += 1
            return
        try:
            self._write(told)
        except OSError as error:
            self.close()
            if not self._missing:
                self._tell(JournalFailed(told.at, f"{self._directory}: {error.strerror or error}"))
            self._missing += 1
            self._failed_at = told.at
        else:
            if self._missing:
                self._tell(JournalRecovered(told.at, self._missing))
            self._missing = 0

    def close(self) -> None:
        """Ends the file; one without a whole turn goes."""
        if self._file is not None:
            self._file.end()
            self._file = None

    def _write(self, told: Decided) -> None:
        file = self._file
        if file is not None and (
            file.differences > self._limits.bytes / SHARES or not 0 <= told.at - file.begun < DAY
        ):
            self.close()
            file = None
        if file is None:
            file = self._file = _begun(self._directory, told.at)
            self._remove_oldest(told.at)
        file.write(told)

    def _remove_oldest(self, now: float) -> None:
        """Keeps the newest files as far as the limits go, with room for what comes into the one
        just begun.
        """
        left = self._limits.bytes * (1 - 1 / SHARES)
        for index, file in enumerate(reversed(files(self._directory))):
            with contextlib.suppress(OSError):
                found = file.stat()
                left -= found.st_size
                if index and (
                    index >= MOST_FILES
                    or left < 0
                    or now - found.st_mtime > self._limits.days * DAY
                ):
                    file.unlink()


@dataclass(slots=True)
class _File:
    """The file being written: since when, how many turns are whole in it, and how many bytes of it
    are differences.
    """

    path: Path
    handle: int
    begun: float
    writer: codec.JournalWriter = field(default_factory=codec.JournalWriter)
    turns: int = 0
    differences: int = 0

    def write(self, told: Decided) -> None:
        line, whole = self.writer.line(told)
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
    """A new file under the next number; another process may have taken it just now."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = max(map(_number, files(directory)), default=0)
    while True:
        number += 1
        path = directory / f"journal-{number:06d}.jsonl"
        with contextlib.suppress(FileExistsError):
            return _File(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), now)


def _write_all(handle: int, data: bytes) -> None:
    """A disk that gets full takes a part first."""
    while data:
        data = data[os.write(handle, data) :]
