"""What a deployer tells once, as long as it stands: that it is suspended and what waits, and what
is left undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from gitops_ds.model.change import Plan
from gitops_ds.model.control_requests import Steering
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.events.deployer import (
    ChangeSkipped,
    NotApplied,
    Reconciled,
    ReconcileFailed,
)
from gitops_ds.model.events.requests import Resumed, Suspended
from gitops_ds.model.objects import CommitId
from gitops_ds.model.plural import counted
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.skipped import Skipped


class LeaderEmitter:
    """Publishes the events of a deployer while this replica leads; failures also on a standby."""

    def __init__(self, emit: Emit, is_leading: Callable[[], bool]) -> None:
        """`always` publishes an event on every replica."""
        self.always, self._is_leading = emit, is_leading
        self.progress_at = 0.0  # the last event, in seconds of the event loop

    def __call__(self, event: Event) -> None:
        """Publishes an event."""
        self.progress_at = asyncio.get_running_loop().time()
        if self._is_leading() or isinstance(event, ReconcileFailed):
            self.always(event)


class DeduplicatingEmitter:
    """What was told so far; `clock` gives seconds since 1970."""

    def __init__(self, emit: Emit, clock: Callable[[], float]) -> None:
        """Nothing was."""
        self._emit, self._clock = emit, clock
        self._suspended: Suspended | None = None
        self._withheld: frozenset[Skipped] = frozenset()
        self._left: frozenset[Skipped] = frozenset()
        self._commit: CommitId | None = None

    def handle(self, told: Event) -> None:
        """Tells what a pass tells, but not again what the pass before left undone for the same
        reason.
        """
        if isinstance(told, NotApplied) and told.refusal in self._left:
            return
        if isinstance(told, Reconciled):
            left = frozenset(told.refusals)
            unchanged = (told.commit, left) == (self._commit, self._left)
            told = replace(told, repeated=unchanged and not told.writes)
            self._commit, self._left = told.commit, left
        self._emit(told)

    def suspended(self, made: Plan) -> str:
        """Tells that nothing is written, and again when something else waits; how the pass ended,
        in words.
        """
        told = Suspended(self._clock(), made.commit, len(made.writes))
        if self._suspended is None or (told.commit, told.changes) != (
            self._suspended.commit,
            self._suspended.changes,
        ):
            self._emit(told)
        self._suspended = told
        return (
            f"suspended: {counted(len(made.writes), 'change')} of commit "
            f"{(made.commit or '')[:12]} not applied"
        )

    def steered(self, steering: Steering) -> None:
        """Tells that it is suspended no longer."""
        if self._suspended is not None and not steering.suspended:
            self._emit(Resumed(self._clock()))
            self._suspended = None

    def withheld(self, refusals: Sequence[Skipped]) -> None:
        """Tells each refusal once, as long as it stands; drift is told by who finds it."""
        for refusal in refusals:
            if refusal not in self._withheld and refusal.reason is not SkipReason.DRIFT:
                self._emit(ChangeSkipped(self._clock(), refusal))
        self._withheld = frozenset(refusals)


def outcome(tip: CommitId, ended: Reconciled) -> str:
    """How a pass ended that wrote what it could, for whoever asked for it."""
    failed = ended.failed
    applied = f"commit {(ended.commit or '')[:12]} is applied: {ended.writes} written"
    if ended.commit != tip:
        return f"failure: commit {tip[:12]} is not applied; the last good one stays: {applied}"
    if failed:
        commit = f"commit {(ended.commit or '')[:12]} is not applied as a whole"
        return (
            f"failure: {commit}: {ended.writes} written, {len(failed)} refused: {failed[0].message}"
        )
    kept = "; ".join(refusal.message for refusal in ended.refusals)
    return f"success: {applied}" + (f"; {kept}" if kept else "")
