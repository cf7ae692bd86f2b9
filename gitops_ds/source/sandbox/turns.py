"""Turns of repositories at work that shares the memory of the pod, so that the work of one
repository delays another only for a limited time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

T = TypeVar("T")
MOST_ENDS: Final = 3  # how often each other repository ends the same work
_LOOK: Final = 1.0  # seconds between two looks of waiting work at the running
_HALF_LIFE: Final = 600.0  # seconds after which the used time of a repository counts half


@dataclass(eq=False, slots=True)
class _Claim:
    """Work of `who`, which others may end `kept` seconds after an attempt began. `ended_by` has
    those that did.
    """

    who: str
    kept: float
    long: bool
    ended_by: Counter[str] = field(default_factory=Counter)


@dataclass(eq=False, slots=True)
class _Attempt:
    """The running attempt at some work, which began at that time of the event loop."""

    work: _Claim
    task: asyncio.Future[Any]
    began: float
    is_ended: bool = False

    def may_be_ended_by(self, other: str, now: float) -> bool:
        work = self.work
        is_over = now >= self.began + work.kept and not self.is_ended
        return is_over and other != work.who and work.ended_by[other] < MOST_ENDS


class TurnEnded(Exception):
    """Work that may not begin again was ended for that of others."""


class _UsedTime:
    """The seconds that each repository has used, which count less as time passes."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}

    def of(self, who: str, now: float) -> float:
        seconds, at = self._used.get(who, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / _HALF_LIFE))

    def add(self, who: str, seconds: float, now: float) -> None:
        self._used[who] = self.of(who, now) + seconds, now


class Turns:
    """Admits `places` at a time: the repository that has used the least time first, of its work the
    short before the long, each in order of arrival. So a repository waits for the running work, not
    for all work of others.

    Short work that waits ends work that has run for its time, of a repository that has used more.
    Ended work is long, and begins again at its next turn. Each other repository ends the same work
    at most MOST_ENDS times, so that it is complete in the end.
    """

    def __init__(self, places: int = 1) -> None:
        self._places = places
        self._running: list[_Attempt] = []
        self._admitted = 0
        self._waiting: list[tuple[_Claim, asyncio.Future[None]]] = []
        self._used = _UsedTime()

    async def run(
        self,
        who: str,
        attempt: Callable[[], Awaitable[T]],
        *,
        kept: float,
        long: bool = False,
        repeats: bool = True,
    ) -> T:
        """The result of an attempt in its turn. An attempt that is ended is cancelled, and begins
        again; without `repeats` TurnEnded is raised.
        """
        work = _Claim(who, kept, long)
        while True:
            await self._admit(work)
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(attempt())
            running = _Attempt(work, task, loop.time())
            self._running.append(running)
            try:
                return await task
            except asyncio.CancelledError:
                if not running.is_ended or _is_cancelled():
                    raise
            finally:
                self._running.remove(running)
                self._used.add(who, loop.time() - running.began, loop.time())
                self._leave()
            if not repeats:
                raise TurnEnded
            work.long, work.kept = True, 0.0

    async def _admit(self, work: _Claim) -> None:
        """Waits for a place, and ends work of others for it if this is short."""
        if self._admitted < self._places:
            self._admitted += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, turn))
        try:
            while not turn.done():
                if not work.long:
                    self._end_one_for(work.who)
                await asyncio.wait({turn}, timeout=_LOOK)
        except asyncio.CancelledError:
            if turn.done():
                self._leave()
            turn.cancel()
            raise

    def _end_one_for(self, who: str) -> None:
        now = asyncio.get_running_loop().time()
        used = self._used.of(who, now)
        for running in self._running:
            theirs = self._used.of(running.work.who, now) + now - running.began
            if used < theirs and running.may_be_ended_by(who, now):
                running.work.ended_by[who] += 1
                running.is_ended = True
                running.task.cancel()
                return

    def _leave(self) -> None:
        """Gives the place to the next that waits."""
        now = asyncio.get_running_loop().time()
        self._waiting = [(work, turn) for work, turn in self._waiting if not turn.done()]
        if not self._waiting:
            self._admitted -= 1
            return
        first = min(
            self._waiting, key=lambda waiting: (self._used.of(waiting[0].who, now), waiting[0].long)
        )
        self._waiting.remove(first)
        first[1].set_result(None)


def _is_cancelled() -> bool:
    """Whether the task that awaits the attempt is cancelled itself."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
