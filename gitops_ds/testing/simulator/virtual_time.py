"""Event loops with a simulated clock: an hour takes milliseconds, or the time advances at a
multiple of real time.

The clock does not advance while anything can run, nor while a thread (`run_in_executor`,
`to_thread`) works, so all runs are equal on all machines. In virtual time it jumps to the next
timer when nothing can run. Sockets are not supported: a reply from outside takes real time.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, TypeVar

# The instant at which every loop of this module starts, as seconds since 1970: timestamps are then
# the same in each run.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

_T = TypeVar("_T")


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: all tasks wait indefinitely."""


class _Selector:
    """The loop's selector: waits with `wait`, and delegates to the real one."""

    def __init__(self, wait: Callable[[selectors.BaseSelector, float | None], Any]) -> None:
        self._real = selectors.DefaultSelector()
        # the ready files within a number of seconds of the loop's own time
        self.select = functools.partial(wait, self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _SteppedLoop(asyncio.SelectorEventLoop, ABC):
    """An event loop from 0 whose clock advances only while it waits, not while it or a thread of
    its executor works: a slow machine takes longer with the same result.
    """

    def __init__(self) -> None:
        self._now, self._in_threads = 0.0, 0
        super().__init__(_Selector(self._wait))  # type: ignore[arg-type]  # it has every method that the loop calls

    def time(self) -> float:
        """Seconds of the loop's clock since its start."""
        return self._now

    def _wait(self, real: selectors.BaseSelector, timeout: float | None) -> Any:
        if self._in_threads and timeout != 0:
            return real.select(None)
        return self._step(real, timeout)

    @abstractmethod
    def _step(self, real: selectors.BaseSelector, timeout: float | None) -> Any:
        """The ready files, after at most `timeout` seconds of the loop."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Runs it in a thread; the clock does not advance until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._left_thread)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  asyncio's own signature
        """Waits for the threads, in real time."""
        self._in_threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._in_threads -= 1

    def _left_thread(self, _: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


class VirtualLoop(_SteppedLoop):
    """An event loop in virtual time: it jumps to the next timer when nothing can run.

    `run_until_complete` raises Deadlock with the waiting tasks if an ordinary loop would hang.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None
        super().__init__()
        self.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a timer's callback ends the run; an ordinary loop would only log it."""
        if "handle" in context and isinstance(error := context.get("exception"), BaseException):
            self._error = error
        else:
            loop.default_exception_handler(context)

    def _wait(self, real: selectors.BaseSelector, timeout: float | None) -> Any:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if timeout == 0:  # something can run; a system call each time takes 3 % of a scene
            return []
        return super()._wait(real, timeout)

    def _step(self, real: selectors.BaseSelector, timeout: float | None) -> Any:
        if ready := real.select(0):
            return ready
        if timeout is None:
            raise Deadlock(_waiting(self))
        self._now += max(timeout, 0)
        return []


class ScaledLoop(_SteppedLoop):
    """An event loop whose clock advances by `speed` seconds per real second."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        super().__init__()

    def _step(self, real: selectors.BaseSelector, timeout: float | None) -> Any:
        if timeout is None:
            return real.select(None)
        began = time.monotonic()
        ready = real.select(timeout / self._speed)
        waited = (time.monotonic() - began) * self._speed
        self._now += min(waited, timeout) if ready else max(timeout, 0)
        return ready


def run(main: Coroutine[Any, Any, _T], speed: float | None = None) -> _T:
    """The result of `main`, run in virtual time, or at `speed` seconds a real second (1.0: real
    time).

    Raises ValueError for a speed of 0 or less, and Deadlock in virtual time if all tasks wait
    indefinitely.
    """
    if speed is not None and speed <= 0:
        main.close()
        raise ValueError(f"speed must be above 0, not {speed}")
    with asyncio.Runner(
        loop_factory=VirtualLoop if speed is None else lambda: ScaledLoop(speed)
    ) as runner:
        return runner.run(main)


def clock(epoch: float = EPOCH) -> Callable[[], float]:
    """A clock in seconds since 1970 that shows `epoch` at the running loop's time 0."""
    return lambda: epoch + asyncio.get_running_loop().time()


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    lines = []
    for task in asyncio.all_tasks(loop):
        frames = task.get_stack(limit=1)
        where = f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "?"
        lines.append(f"{task.get_name()} at {where}")
    return "nothing is ready and no timer is set; these tasks wait indefinitely: " + (
        "; ".join(sorted(lines)) or "none"
    )
