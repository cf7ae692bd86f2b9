"""The limit of CPU time for schemas of a repository, by a timer of the process.

Python's `re` keeps the interpreter's lock while it matches, and checks for signals: so a signal can
end it, but another thread can't. Signals are handled in the main thread; in other threads, and on
systems without such timers, nothing is limited.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from gitops_ds.kube.apimachinery import json_schema

SECONDS = 10.0  # a schema of 1,000 parameters takes some hundredths of one
_AGAIN = 0.5  # seconds until the next signal, in case that other code catches the first one


class CpuBudget:
    """The CPU time in seconds for all limited code together."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.left = seconds

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Counts the time in the context; raises CpuLimitExceeded when it is used up, and
        afterwards at once.
        """
        if self.left <= 0:
            raise json_schema.CpuLimitExceeded
        if (
            not hasattr(signal, "setitimer")
            or threading.current_thread() is not threading.main_thread()
        ):
            yield
            return
        began, before = time.process_time(), signal.signal(signal.SIGPROF, _exceeded)
        signal.setitimer(signal.ITIMER_PROF, self.left, _AGAIN)
        try:
            yield
        except json_schema.CpuLimitExceeded:
            self.left = 0.0  # the two clocks differ by some ticks
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            self.left -= time.process_time() - began


def _exceeded(number: int, frame: FrameType | None) -> NoReturn:
    raise json_schema.CpuLimitExceeded


def install(seconds: float = SECONDS) -> None:
    """Sets the limit for this context and those derived from it."""
    json_schema.limiter.set(CpuBudget(seconds).limited)
