"""A check of many files by two processes: the other one checks the later files, and its objects
without findings are skipped here.

It changes no result, and the check does not wait for it: files that it has not checked in time, or
because it died, are checked here. If it is not possible (one processor, threads that a fork would
lose, other systems than Linux), the check runs in one process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import islice
from pathlib import PurePosixPath
from typing import NoReturn, TypeVar

import orjson

from gitops_ds.cli.check import result_cache
from gitops_ds.cli.check.model import CheckInput
from gitops_ds.cli.check.run import of
from gitops_ds.core.objects import Digest
from gitops_ds.core.sources.source_tree import CachedResults
from gitops_ds.core.values import replace
from gitops_ds.source.render import bundle as rendering

# Fewer are checked before another process has started; with more, both would need too much memory.
_FEW, _MOST = 400, 4_000
_SETTINGS = PurePosixPath("gitops-ds.yaml")

V = TypeVar("V")


@contextlib.contextmanager
def shared(sides: CheckInput) -> Iterator[CheckInput]:
    """The same sides, with another process that checks the later files meanwhile, if that saves
    time.
    """
    head = sides.head
    if not (_FEW <= len(head.files) <= _MOST and _is_plain(sides) and _can_fork()):
        yield sides
        return
    later = dict(islice(sorted(head.files.items()), len(head.files) // 2, None))
    settings = {path: data for path, data in head.files.items() if path == _SETTINGS}
    other = SecondProcess(sides.with_head(replace(head, files=settings | later)))
    try:
        yield sides.with_head(replace(head, cached=CachedResults(clean=_Soon(other.clean))))
    finally:
        other.end()


def _is_plain(sides: CheckInput) -> bool:
    """Whether every file consists of plain manifests, without cached results."""
    head = sides.head
    made = (
        head.expanded
        or head.charts
        or head.consumed
        or rendering.clusters(head)
        or rendering.agents(head)
    )
    return sides.base is None and not (sides.live or made or head.cached.files)


def _can_fork() -> bool:
    return (
        sys.platform == "linux"
        and len(os.sched_getaffinity(0)) > 1
        and threading.active_count() == 1
    )


class SecondProcess:
    """A process that checks these files. Its results are in an unnamed memory file; the end of a
    pipe signals their completion.
    """

    def __init__(self, sides: CheckInput) -> None:
        self._open, inherited = os.pipe()
        self._found = os.memfd_create("found")
        self._ended = False
        self.pid = os.fork()
        if not self.pid:
            self._work(inherited, sides)
        os.close(inherited)

    def _work(self, done: int, sides: CheckInput) -> NoReturn:
        try:
            gc.disable()
            clean = result_cache.clean_in(of(sides))
            with os.fdopen(self._found, "wb", closefd=False) as pipe:
                pipe.write(orjson.dumps({name: sorted(digests) for name, digests in clean.items()}))
            os.write(done, b".")
        finally:
            os._exit(0)  # in any case: the cleanup of the first process must not run here

    def clean(self, *, wait: bool = False) -> Mapping[str, Set[Digest]] | None:
        """`CachedResults.clean` of the files that it checked; None while it runs, if it failed, and
        after `end`.
        """
        if self._ended:
            return None
        os.set_blocking(self._open, wait)
        try:
            if not os.read(self._open, 1):
                return None
        except BlockingIOError:
            return None
        with os.fdopen(self._found, "rb", closefd=False) as pipe:
            pipe.seek(0)
            return {name: frozenset(digests) for name, digests in orjson.loads(pipe.read()).items()}

    def end(self) -> None:
        """Ends the process at any point."""
        self._ended = True
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._open)
        os.close(self._found)


class _Soon(Mapping[str, V]):
    """A mapping that loads its content on first use."""

    def __init__(self, load: Callable[[], Mapping[str, V] | None]) -> None:
        self._load = load
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
            self._found = self._load()
        return {} if self._found is None else self._found
