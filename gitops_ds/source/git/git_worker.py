"""The worker thread of a repository: functions on the local copy, in order.

GitPython's objects are not thread-safe, so none leaves that thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gitops_ds.core import errors
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.source.git.address import Address
from gitops_ds.source.git.bare_repository import BareRepository

_KILL_AGAIN: Final = 0.05  # seconds
T = TypeVar("T")


class GitWorker:
    """Runs functions on the bare copy of an address in the cache directory, which the first one
    opens.
    """

    def __init__(self, address: Address, cache: Path, limits: RepositoryLimits) -> None:
        self._address, self._cache, self._limits = address, cache, limits
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="git")
        self._bare: BareRepository | None = None

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function; its commands have the memory of a repository outside its turn. Raises
        SourceError.
        """
        return await self._in_thread(False, function, *arguments)

    async def run_in_turn(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function; its commands have all memory of git. Raises SourceError."""
        return await self._in_thread(True, function, *arguments)

    async def until_cancelled(
        self, run: Callable[..., Awaitable[T]], function: Callable[..., T], *arguments: object
    ) -> T:
        """Runs a function with one of the two methods, or a method that uses them; a cancellation
        ends its command.
        """
        work = _EndableWork()
        try:
            return await run(work.run, function, *arguments)
        except asyncio.CancelledError:
            work.is_cancelled = True
            while work.is_running:
                if self._bare is not None:
                    self._bare.end_command()
                await asyncio.sleep(_KILL_AGAIN)
            raise

    async def close(self) -> None:
        """Kills the running command and git's helpers, and deletes the credentials from the disk,
        without waiting for the server.
        """
        self._closing.set()
        if self._bare is not None:
            self._bare.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close_bare)
        self._thread.shutdown(wait=True)

    async def _in_thread(self, has_turn: bool, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._call, has_turn, function, arguments
        )

    def _call(self, has_turn: bool, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        if self._bare is None:
            self._bare = BareRepository(self._address, self._cache, self._limits, self._closing)
        if self._closing.is_set():
            raise errors.SourceError(f"{self._address.display} is closed")
        self._bare.has_turn = has_turn
        try:
            return function(self._bare, *arguments)
        except OSError as error:
            raise errors.SourceError(
                f"the cache of {self._address.display} can't be used: {error.strerror}"
            ) from None

    def _close_bare(self) -> None:
        bare, self._bare = self._bare, None
        if bare is not None:
            bare.close()


@dataclass(slots=True)
class _EndableWork:
    """A function in the worker, and whether it has been cancelled from the event loop."""

    is_running: bool = False
    is_cancelled: bool = False

    def run(self, bare: BareRepository, function: Callable[..., T], *arguments: object) -> T:
        self.is_running = True
        try:
            if self.is_cancelled:
                raise errors.SourceUnreachable(f"work on {bare.address.display} was ended")
            return function(bare, *arguments)
        finally:
            self.is_running = False
