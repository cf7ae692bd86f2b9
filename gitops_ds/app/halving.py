"""A check of many files by two processes: the other one begins with the later half, and what it found out is known here.

It changes no result, and nobody waits for it: what it has not found out in time, or because it died, is found out here. Where it
can't be (one processor, threads that a fork would lose, another system than Linux), the check is as it always was.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import NoReturn, TypeVar

import orjson

from gitops_ds.app import remembering
from gitops_ds.app.checking import Checked, Sides, Wanted, of
from gitops_ds.model.known import Known
from gitops_ds.model.objects import Digest
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.render import bundle as rendering
from gitops_ds.render import drafts

# Fewer are checked before another process is at work; of more, what both hold would be too much memory.
_FEW, _MOST = 400, 4_000
_READ, _JUDGED = b"r", b"j"
_SETTINGS = PurePosixPath("gitops-ds.yaml")

V = TypeVar("V")


@contextlib.contextmanager
def halved(sides: Sides, wanted: Wanted) -> Iterator[Sides]:
    """The same sides, where another process is at work on the later half of the files meanwhile, if that is worth it."""
    head = sides.head
    if not (_FEW <= len(head.files) <= _MOST and _is_plain(sides) and _can_fork()):
        yield sides
        return
    later = dict(islice(sorted(head.files.items()), len(head.files) // 2, None))
    settings = {path: data for path, data in head.files.items() if path == _SETTINGS}
    other = Other(replace(head, files=settings | later), wanted)
    try:
        yield sides.with_head(replace(head, known=Known(_Soon(other.files), _Soon(other.clean))))
    finally:
        other.end()


def _is_plain(sides: Sides) -> bool:
    """Whether every manifest speaks for itself, and none is known yet."""
    head = sides.head
    made = head.expanded or head.charts or head.consumed or rendering.clusters(head) or rendering.agents(head)
    return sides.base is None and not (sides.live or made or head.known.files)


def _can_fork() -> bool:
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


class Other:
    """A process that checks these files. What it finds lies in memory that has a name on no disk; a pipe says how far it is."""

    def __init__(self, snapshot: Snapshot, wanted: Wanted) -> None:
        self._signals, signals = os.pipe()
        self._said = b""
        self._found, self._verdict = os.memfd_create("found"), os.memfd_create("verdict")
        self.pid = os.fork()
        if not self.pid:
            self._work(signals, snapshot, wanted)
        os.close(signals)

    def _work(self, signals: int, snapshot: Snapshot, wanted: Wanted) -> NoReturn:
        try:
            gc.disable()
            _write(self._found, _read(snapshot))
            os.write(signals, _READ)
            _write(self._verdict, _judge(of(Sides(snapshot, None, {}), wanted)))
            os.write(signals, _JUDGED)
        finally:
            os._exit(0)  # whatever happened: nothing of the first process is ended twice

    def files(self, *, wait: bool = False) -> Mapping[str, bytes] | None:
        """`Known.files` of what it read; None as long as it reads."""
        if not self._reached(_READ, wait=wait):
            return None
        lines = _all_of(self._found).split(b"\n")
        return {line[: remembering.NAME].decode(): line[remembering.NAME :] for line in lines if line}

    def clean(self, *, wait: bool = False) -> Mapping[str, Set[Digest]] | None:
        """`Known.clean` of what it judged; None as long as it judges."""
        if not self._reached(_JUDGED, wait=wait):
            return None
        return {name: frozenset(digests) for name, digests in orjson.loads(_all_of(self._verdict)).items()}

    def end(self) -> None:
        """Ends it, wherever it is."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for file in (self._signals, self._found, self._verdict):
            os.close(file)

    def _reached(self, mark: bytes, *, wait: bool) -> bool:
        os.set_blocking(self._signals, wait)
        with contextlib.suppress(BlockingIOError):
            while mark not in self._said and (said := os.read(self._signals, 1)):
                self._said += said
        return mark in self._said


class _Soon(Mapping[str, V]):
    """A mapping that is empty until what it holds is told."""

    def __init__(self, told: Callable[[], Mapping[str, V] | None]) -> None:
        self._told = told
        self._found: Mapping[str, V] | None = None

    def __getitem__(self, name: str) -> V:
        return self._now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)

    @property
    def _now(self) -> Mapping[str, V]:
        if self._found is None:
            self._found = self._told()
        return {} if self._found is None else self._found


def _read(snapshot: Snapshot) -> bytes:
    lines = []
    for path, data in snapshot.files.items():
        objects = drafts.read(str(path), data)
        if drafts.is_news(objects) and (line := drafts.remember(objects)):
            lines.append(hashlib.sha256(data).hexdigest().encode() + line)
    return b"\n".join(lines)


def _judge(checked: Checked) -> bytes:
    return orjson.dumps({name: sorted(digests) for name, digests in remembering.clean_in(checked).items()})


def _write(file: int, data: bytes) -> None:
    with os.fdopen(file, "wb", closefd=False) as written:
        written.write(data)


def _all_of(file: int) -> bytes:
    with os.fdopen(file, "rb", closefd=False) as found:
        found.seek(0)
        return found.read()
