"""When Git is asked for the tip of the branch, so that a Git server that is away or hangs holds up
no other work.

The schedule, a webhook and a request want a look; a change in the cluster does not, and is planned
with the tip that is known.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gitops_ds import errors
from gitops_ds.model.objects import CommitId

# seconds that a pass waits for the answer while a commit is there to be kept applied
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The tip as far as it is known, None before the first answer. `asked`: Git answered just now,
    or failed with `error`.
    """

    tip: CommitId | None
    asked: bool = False
    error: errors.SourceError | None = None

    @property
    def answered(self) -> bool:
        """Whether the tip is Git's answer of just now."""
        return self.asked and self.error is None


class Looks:
    """The looks of one loop at its source. `wake` is called when an answer came that no pass waited
    for.

    `due` is when the next look is wanted, in the time of the event loop; `failing`: the last one
    gave an error.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[CommitId]],
        wake: Callable[[], None],
        *,
        always: bool = False,
    ) -> None:
        """`always`: an answer costs nothing, so every pass gets one."""
        self._ask, self._wake, self._always = ask, wake, always
        self.due = 0.0
        self._asking: asyncio.Task[CommitId] | None = None
        self.failing = False

    def want(self, seconds: float = 0.0) -> None:
        """Wants a look by the next pass that begins so many seconds from now, or by an earlier one
        that was wanted before.
        """
        self.due = min(self.due, asyncio.get_running_loop().time() + seconds if seconds else 0.0)

    async def look(self, known: CommitId | None) -> Seen:
        """The tip; what is known of it when no look is due, or when the answer takes long.

        Raises ClusterError where the source is in the cluster.
        """
        # A timer may be early by the resolution of the clock.
        is_due = (
            self._always
            or self._asking is not None
            or asyncio.get_running_loop().time() + 0.01 >= self.due
        )
        if known is not None and not is_due:
            return Seen(known)
        self.due = math.inf
        asking = self._asking = self._asking or asyncio.ensure_future(self._ask())
        await asyncio.wait({asking}, timeout=None if known is None else PATIENCE)
        if not asking.done():
            asking.add_done_callback(lambda _: self._wake())
            return Seen(known)
        self._asking, self.failing = None, True
        try:
            tip = asking.result()
        except errors.SourceError as error:
            return Seen(known, asked=True, error=error)
        self.failing = False
        return Seen(tip, asked=True)

    async def close(self) -> None:
        """Gives up on an answer that is still to come."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            self._asking = None
