"""Requests for the tip of the branch, so that a Git server that is away or hangs holds up no other
work.

A reconciliation waits a short time for the answer, and continues with the known tip; the answer
wakes the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds import errors
from gitops_ds.deployer import loop_inputs, loop_state
from gitops_ds.deployer.reconcile_schedule import ReconcileSchedule
from gitops_ds.model.objects import CommitId

# seconds that a reconciliation waits for the answer while it knows a commit to keep applied
PATIENCE = 5.0


class TipAnswer(msgspec.Struct, frozen=True):
    """The tip as far as it is known, None before the first answer. `received`: Git answered just
    now, or failed with `error`.
    """

    tip: CommitId | None
    received: bool = False
    error: errors.SourceError | None = None

    @property
    def current(self) -> bool:
        """Whether the tip is Git's answer of just now."""
        return self.received and self.error is None


class TipLookup:
    """The requests of one loop to its source. `wake` is called for an answer that came after the
    reconciliation stopped waiting.
    """

    def __init__(
        self,
        request: Callable[[], Awaitable[CommitId]],
        wake: Callable[[], None],
        *,
        always: bool = False,
    ) -> None:
        """`always`: an answer costs nothing, so every reconciliation gets one."""
        self._request, self._wake, self._always = request, wake, always
        self._running: asyncio.Task[CommitId] | None = None

    @property
    def pending(self) -> bool:
        """Whether a result is due regardless of the schedule: in progress, or without cost."""
        return self._always or self._running is not None

    async def request(self, last_tip: CommitId | None) -> TipAnswer:
        """The tip; the last one when the answer takes long.

        Raises ClusterError where the source is in the cluster.
        """
        running = self._running = self._running or asyncio.ensure_future(self._request())
        await asyncio.wait({running}, timeout=None if last_tip is None else PATIENCE)
        if not running.done():
            running.add_done_callback(lambda _: self._wake())
            return TipAnswer(last_tip)
        self._running = None
        try:
            return TipAnswer(running.result(), received=True)
        except errors.SourceError as error:
            return TipAnswer(last_tip, received=True, error=error)

    async def close(self) -> None:
        """Cancels a request in progress."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None


async def request_when_due(
    lookup: TipLookup, schedule: ReconcileSchedule, last_tip: CommitId | None
) -> TipAnswer:
    """Git's answer where a look is due; else the last tip. Raises ClusterError."""
    now = asyncio.get_running_loop().time()
    is_due = lookup.pending or loop_state.tip_is_due(schedule.state, now)
    if last_tip is not None and not is_due:
        return TipAnswer(last_tip)
    schedule.feed(loop_inputs.TipRequested())
    try:
        answer = await lookup.request(last_tip)
    except errors.ClusterError:
        schedule.feed(loop_inputs.GitFailed())
        raise
    if answer.error is not None:
        schedule.feed(loop_inputs.GitFailed())
    elif answer.received and answer.tip is not None:
        schedule.feed(loop_inputs.TipReceived(answer.tip))
    return answer


def no_answer() -> errors.SourceUnreachable:
    """The error while a Git server has not answered yet."""
    return errors.SourceUnreachable("the Git server gave no answer yet")
