"""The limit of CPU time for schemas of a repository, by a timer of the process.

Python's `re` keeps the interpreter's lock while it matches, and looks for signals meanwhile: so a
signal ends it, where another thread could not. Signals are handled in the main thread; elsewhere,
and on systems without such timers, nothing is limited.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from gitops_ds.model import cpu_limit

SECONDS = 10.0  # a schema of 1,000 parameters takes some hundredths of one
_AGAIN = 0.5  # seconds until the next signal, should code in between have caught the first one


class CpuBudget:
    """CPU time for all that is limited together, in seconds."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.left = seconds

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Counts the time inside; raises CpuLimitExceeded there when it is used up, and at once
        from then on.
        """
        if self.left <= 0:
            raise cpu_limit.CpuLimitExceeded
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
        except cpu_limit.CpuLimitExceeded:
            self.left = 0.0  # the two clocks differ by some ticks
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            self.left -= time.process_time() - began


def _exceeded(number: int, frame: FrameType | None) -> NoReturn:
    raise cpu_limit.CpuLimitExceeded


def install(seconds: float = SECONDS) -> None:
    """For this context, and those made from it, from now on."""
    cpu_limit.limiter.set(CpuBudget(seconds).limited)
