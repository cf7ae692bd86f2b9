"""Background tasks that must not end: one that raises is reported, counted and started again.

asyncio drops the exception of a task that is never awaited, and the data that the task updates
would become stale without notice. In client-go a panic of a reflector ends the process or is
restarted (k8s.io/apimachinery, util/wait and util/runtime).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds.core.events.base import Emit, TaskRestarted
from gitops_ds.core.rate_limits import Backoff

RESTARTS = Backoff(1.0, 60.0)
HEALTHY_AFTER = 300.0  # seconds; after a run of this length earlier failures no longer count


def _never(_: Exception) -> bool:
    return False


class Supervisor(msgspec.Struct, frozen=True):
    """Starts tasks and keeps them running. `clock` gives seconds since 1970; an error that `final`
    accepts ends the task.
    """

    emit: Emit
    clock: Callable[[], float]
    final: Callable[[Exception], bool] = _never

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Runs it in the background until it returns or is cancelled. `name`: its name in log and
        metric.
        """
        return asyncio.create_task(self.keep(name, run), name=name)

    async def keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Runs it until it returns, and again after each error that is not final."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await run()
            except Exception as error:
                if self.final(error):
                    raise
                failures = 1 if loop.time() - began >= HEALTHY_AFTER else failures + 1
                wait = RESTARTS.delay(failures)
                reason = f"{type(error).__name__}: {error}"
                self.emit(TaskRestarted(self.clock(), name, reason, wait))
                await asyncio.sleep(wait)
            else:
                return


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancels the tasks and waits until they have ended, with their cleanup."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
