"""An event loop in a separate thread, for a test that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadLoop:
    """Runs from its creation until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work in the loop, and waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        """Cancels the remaining tasks, closes the remaining connections, and ends the loop."""
        self.do(_cancel_the_rest())
        self.do(_abort_the_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_the_rest() -> None:
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _abort_the_rest() -> None:
    """A browser connects ahead of its requests: a connection that was accepted while its server
    ended belongs to nothing that closes it.
    """
    await asyncio.sleep(0)  # an accepted connection becomes a transport
    loop: Any = asyncio.get_running_loop()
    for transport in list(loop._transports.values()):
        transport.abort()
    await asyncio.sleep(0)  # its socket is closed
