"""What a deployer reports: its events without repetitions (a suspension with its pending changes,
and skipped changes), and the status of its repository, which is saved in the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

from gitops_ds.core import errors, stated_reasons
from gitops_ds.core.change import Plan
from gitops_ds.core.deployer_state import Steering
from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import Emit, Event
from gitops_ds.core.events.requests import Resumed, Suspended
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.plain_text import counted
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store
from gitops_ds.deploy.loop_state_machine import LoopStateMachine
from gitops_ds.deploy.revision_selector import SelectedRevision
from gitops_ds.deploy.target import DeployTarget


class LeaderEmitter:
    """Publishes the events of a deployer while this replica leads; failures also on a standby."""

    def __init__(self, emit: Emit, is_leading: Callable[[], bool]) -> None:
        """`always` publishes an event on every replica."""
        self.always, self._is_leading = emit, is_leading
        self._progress_at, self._reading = 0.0, 0

    @property
    def seconds_without_progress(self) -> float:
        """Seconds since the last event; 0.0 while the source is read."""
        return 0.0 if self._reading else asyncio.get_running_loop().time() - self._progress_at

    def progress(self) -> None:
        """Records progress without an event."""
        self._progress_at = asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """The context of reading the source. A fetch and a preparation have their own limits, but
        wait for those of other repositories, which takes longer than a probe allows.
        """
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1
            self.progress()

    def __call__(self, event: Event) -> None:
        """Publishes an event."""
        self.progress()
        if self._is_leading() or isinstance(event, deployer.ReconcileFailed):
            self.always(event)


class DeduplicatingEmitter:
    """The events that were published so far; `clock` returns seconds since 1970."""

    def __init__(self, emit: Emit, clock: Callable[[], float]) -> None:
        self._emit, self._clock = emit, clock
        self._suspended: Suspended | None = None
        self._skipped: frozenset[Skipped] = frozenset()
        self._refusals: frozenset[Skipped] = frozenset()
        self._commit: CommitId | None = None

    def handle(self, event: Event) -> None:
        """Publishes an event of a reconciliation, unless the previous one left the same object
        unchanged for the same reason.
        """
        if isinstance(event, deployer.NotApplied) and event.refusal in self._refusals:
            return
        if isinstance(event, deployer.Reconciled):
            refusals = frozenset(event.refusals)
            unchanged = (event.commit, refusals) == (self._commit, self._refusals)
            event = replace(event, repeated=unchanged and not event.writes)
            self._commit, self._refusals = event.commit, refusals
        self._emit(event)

    def suspend(self, plan: Plan, reason: str = "") -> str:
        """Publishes the suspension, once for the same pending changes; the outcome of the
        reconciliation as a message.
        """
        event = Suspended(self._clock(), plan.commit, len(plan.writes), reason)
        before = self._suspended
        if before is None or replace(before, at=event.at) != event:
            self._emit(event)
        self._suspended = event
        words = (
            f"suspended: {counted(len(plan.writes), 'change')} of commit "
            f"{short(plan.commit)} not applied"
        )
        return stated_reasons.after(words, reason)

    def resume(self, steering: Steering) -> None:
        """Publishes the end of a suspension."""
        if self._suspended is not None and not steering.suspended:
            self._emit(Resumed(self._clock()))
            self._suspended = None

    def skip(self, refusals: Sequence[Skipped]) -> None:
        """Publishes each refusal once while it lasts; drift has its own events."""
        for refusal in refusals:
            if refusal not in self._skipped and refusal.reason is not SkipReason.DRIFT:
                self._emit(deployer.ChangeSkipped(self._clock(), refusal))
        self._skipped = frozenset(refusals)


def outcome(tip: CommitId, ended: deployer.Reconciled) -> str:
    """The outcome of an applied plan as a message, for its request."""
    failed = ended.failed
    applied = f"commit {short(ended.commit)} is applied: {ended.writes} written"
    if ended.commit != tip:
        return f"failure: commit {short(tip)} is not applied; the last good one stays: {applied}"
    if failed:
        commit = f"commit {short(ended.commit)} is not applied as a whole"
        return (
            f"failure: {commit}: {ended.writes} written, {len(failed)} refused: {failed[0].message}"
        )
    kept = "; ".join(refusal.message for refusal in ended.refusals)
    return f"success: {applied}" + (f"; {kept}" if kept else "")


def without_plan(selected: SelectedRevision) -> str:
    """The outcome of a reconciliation that has no commit to apply, for its request."""
    if selected.held:
        why = "held"
    elif selected.waiting:
        why = "waiting"
    elif selected.lost:
        why = "not applied, and the Git server no longer has the last good one"
    else:
        why = "not applied, and there is no earlier good one"
    return f"failure: commit {short(selected.tip)} is {why}"


class StatusKeeper:
    """The status of a repository; `save` runs as long as the deployer."""

    def __init__(
        self,
        target: DeployTarget,
        branch: Callable[[], str],
        machine: LoopStateMachine,
        emit: LeaderEmitter,
    ) -> None:
        """`branch` returns the name of the branch; a response of Git may change it."""
        self.status = SourceStatus(target.owner, target.repository, branch(), since=machine.clock())
        self._machine, self._emit, self._branch = machine, emit, branch
        self._saver = source_status_store.Saver(
            target.cluster, target.namespace, machine.clock, self._saw
        )
        self.save, self.close, self.stop = self._saver.run, self._saver.close, self._saver.stop

    def _saw(self, saved: SourceStatus) -> None:
        """Records whether another service follows the repository."""
        beside, namespace = saved.beside, saved.elsewhere
        self.status = replace(self.status, beside=beside, elsewhere=namespace)
        if saved.warning:
            self._emit(deployer.ServiceBeside(saved.written, saved.repository, namespace))

    def looked(self) -> None:
        """Records a response of Git."""
        self.status = replace(self.status, looked=self._machine.clock())

    def update(
        self,
        facts: source_status_store.Facts,
        steering: Steering,
        error: errors.GitopsError | None = None,
    ) -> None:
        """The status after a reconciliation. While Git does not respond, it remains unreachable."""
        if error is None and self._machine.state.git_failing:
            return
        before, now = self.status, self._machine.clock()
        after = source_status_store.after(before, facts, steering, error, now)
        self.status = replace(after, branch=self._branch())
        changed = self.status != replace(before, looked=self.status.looked)
        self._saver.update(self.status, write=changed)
        if changed:
            self._emit(deployer.SourceChanged(now, self.status, before.condition))
