"""The processes of a simulated world: they end at once, and the error of a process is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Processes:
    """The tasks that `begin` started last."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, *runs: Coroutine[Any, Any, None]) -> None:
        """Starts them."""
        self.tasks = [asyncio.ensure_future(run) for run in runs]

    def kill(self) -> None:
        """Ends all of them at once, at any point."""
        for task in self.tasks:
            task.cancel()

    def check(self) -> None:
        """Raises the error that ended one of them."""
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()
