"""The requests of a deployer to its source. They count as progress of the reconciliation, and those
to Git are timed.

A request for the tip of the branch blocks no other work if the Git server is unreachable or hangs:
a reconciliation waits a short time for the response, then continues with the known tip; the
response starts the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import msgspec

from gitops_ds.core import errors, spans
from gitops_ds.core.events.deployer import GitTimed
from gitops_ds.core.objects import CommitId
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop_inputs, loop_state
from gitops_ds.deploy.loop_state_machine import LoopStateMachine
from gitops_ds.deploy.reports import LeaderEmitter
from gitops_ds.deploy.revision_selector import RevisionSource

# seconds that a reconciliation waits for the response while it has a commit to keep applied
PATIENCE = 5.0
P = ParamSpec("P")
T = TypeVar("T")


class TipAnswer(msgspec.Struct, frozen=True):
    """The known tip, None before the first response. `received`: Git has just responded, or failed
    with `error`.
    """

    tip: CommitId | None
    received: bool = False
    error: errors.SourceError | None = None

    @property
    def current(self) -> bool:
        """Whether Git has just returned the tip."""
        return self.received and self.error is None


class TipLookup:
    """The requests of one loop to its source. `wake` is called for a response after the
    reconciliation has stopped waiting.
    """

    def __init__(
        self,
        request: Callable[[], Awaitable[CommitId]],
        wake: Callable[[], None],
        *,
        always: bool = False,
    ) -> None:
        """`always`: a request costs nothing, so every reconciliation sends one."""
        self._request, self._wake, self._always = request, wake, always
        self._running: asyncio.Task[CommitId] | None = None

    @property
    def pending(self) -> bool:
        """Whether a result is due regardless of the schedule: in progress, or without cost."""
        return self._always or self._running is not None

    async def request(self, last_tip: CommitId | None) -> TipAnswer:
        """The tip; the last known one if the response takes long.

        Raises ClusterError if the source is in the cluster.
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
    lookup: TipLookup, machine: LoopStateMachine, last_tip: CommitId | None
) -> TipAnswer:
    """The tip from Git if a read is due, else the last known one. Raises ClusterError."""
    now = asyncio.get_running_loop().time()
    is_due = lookup.pending or loop_state.tip_is_due(machine.state, now)
    if last_tip is not None and not is_due:
        return TipAnswer(last_tip)
    machine.feed(loop_inputs.TipRequested())
    try:
        answer = await lookup.request(last_tip)
    except errors.ClusterError:
        machine.feed(loop_inputs.GitFailed())
        raise
    if answer.error is not None:
        machine.feed(loop_inputs.GitFailed())
    elif answer.received and answer.tip is not None:
        machine.feed(loop_inputs.TipReceived(answer.tip))
    return answer


def no_answer() -> errors.SourceUnreachable:
    """The error before the first response of a Git server."""
    return errors.SourceUnreachable("the Git server has not responded yet")


def observed(
    source: RevisionSource, emit: LeaderEmitter, clock: Callable[[], float]
) -> RevisionSource:
    """The same source, whose requests count as progress; the duration of those to Git is
    published.
    """

    def reading(request: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        return _reading(request, emit)

    def timed(of: str, request: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        return _reading(_timed(of, request, emit, clock), emit)

    return replace(
        source,
        tip=timed("tip", source.tip),
        snapshot=timed("snapshot", source.snapshot),
        movement=reading(source.movement),
        prepare=reading(source.prepare),
        verify=reading(source.verify),
        verify_kept=reading(source.verify_kept),
    )


def _reading(request: Callable[P, Awaitable[T]], emit: LeaderEmitter) -> Callable[P, Awaitable[T]]:
    """The same request, which counts as progress while it runs."""

    async def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        with emit.reading():
            return await request(*args, **kwargs)

    return reading


def _timed(
    of: str,
    request: Callable[P, Awaitable[T]],
    emit: LeaderEmitter,
    clock: Callable[[], float],
) -> Callable[P, Awaitable[T]]:
    """The same request to Git; its duration is published."""

    async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        began, succeeded = asyncio.get_running_loop().time(), False
        try:
            with spans.span("git", of=of):
                answer = await request(*args, **kwargs)
            succeeded = True
            return answer
        finally:
            seconds = asyncio.get_running_loop().time() - began
            emit.always(GitTimed(clock(), seconds, succeeded))

    return timed
