"""One reconciliation of a repository with a cluster: read the tip, select the revision, plan,
apply, record the status, answer the request. A standby prefetches what a reconciliation reads.

`loop_state` decides when each of them runs; they report their progress to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from gitops_ds.core import errors, spans
from gitops_ds.core.deployer_state import DeployerState, Steering
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.deployer import Reconciled, ReconcileTimed, Unchanged
from gitops_ds.core.events.drift import DriftCorrected
from gitops_ds.core.events.requests import RequestHandled
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Key, short
from gitops_ds.core.rollouts.stopped_rollouts import StoppedRollouts
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import (
    deletion_contents,
    live_state,
    loop_inputs,
    loop_state,
    reports,
    revision_selector,
    source_requests,
    source_status_store,
    state_store,
)
from gitops_ds.deploy.apply import plan_draft, plan_execution
from gitops_ds.deploy.apply.plan_execution import Reconciliation
from gitops_ds.deploy.loop_state_machine import LoopStateMachine
from gitops_ds.deploy.object_claims import Claimant, Claims, Rank
from gitops_ds.deploy.plan import guard_limits, refusals
from gitops_ds.deploy.reports import DeduplicatingEmitter, LeaderEmitter, StatusKeeper
from gitops_ds.deploy.requests import Requests, pushed_commit
from gitops_ds.deploy.revision_selector import RevisionSelector, RevisionSource, SelectedRevision
from gitops_ds.deploy.source_requests import TipAnswer, TipLookup
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.deploy.watch_cache import WatchCache
from gitops_ds.kube.client.supervisor import Supervisor, ended
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.approvals import waiting_stages
from gitops_ds.rollouts.reverts import halted_rollouts


class Reconciler:
    """The reconciliations of one repository on one cluster, with their state."""

    def __init__(
        self,
        source: RevisionSource,
        target: DeployTarget,
        options: ApplyOptions,
        machine: LoopStateMachine,
        emit: LeaderEmitter,
    ) -> None:
        """Nothing is read until `start`."""
        self._options, self._machine, self._emit = options, machine, emit
        self._clock = machine.clock
        source = source_requests.observed(source, emit, machine.clock)
        self._selector = RevisionSelector(source, emit, machine.clock)
        self._causes = source.causes
        self._reports = DeduplicatingEmitter(emit, machine.clock)
        self._lookup = TipLookup(source.tip, self.request_now, always=source.watched)
        self._supervisor = Supervisor(emit.always, machine.clock)
        self._caches = WatchCache(
            target.cluster, target.owner, self.request_soon, machine.chance, self._supervisor
        )
        contents = deletion_contents.ContentsCache(lambda: asyncio.get_running_loop().time())
        self.target = replace(
            target, clock=machine.clock, wrote=self._caches.expect, contents=contents.read
        )
        place = (target.namespace, target.owner)
        self._requests = Requests(target.cluster, place, self._request_changed, machine.chance)
        self._status = StatusKeeper(target, source.branch, machine, emit)
        self._tasks: list[asyncio.Task[None]] = []
        self._tip: CommitId | None = None
        self._stored: DeployerState | None = None
        self.last_stored: DeployerState | None = None
        self.selected: SelectedRevision | None = None
        self.stopped_rollouts: StoppedRollouts | None = None
        self._claimant: Claimant | None = None
        self._ended: Reconciled | None = None
        self._suspended_changes: int | None = None
        # for the request of the reconciliation: its outcome, and whether it used the approval
        self._message, self._approval_used = "", False

    def start(self) -> None:
        """Starts to watch requests, and to save the status."""
        self._tasks = [
            self._supervisor.start("watch requests", self._requests.run),
            self._supervisor.start("source status", self._status.save),
        ]

    async def close(self) -> None:
        """Ends all tasks; a leader saves that it no longer follows the repository."""
        await ended(*self._tasks)
        if self._machine.state.leading:
            await self._status.close()
        await self._lookup.close()
        await self._caches.stop()

    def join(self, claims: Claims, rank: Rank) -> None:
        """Joins the other deployers of a service, which never compete for an object."""
        self._claimant = claims.join(self.target.owner, rank, self.request_soon)
        self._caches.bodies = claims.bodies

    def request_now(self) -> None:
        """Requests a reconciliation of the known tip."""
        self._machine.feed(loop_inputs.ReconcileRequested())

    def request_soon(self) -> None:
        """Requests a reconciliation that covers this change and those that follow at once."""
        self._machine.feed(loop_inputs.ClusterChanged())

    def _request_changed(self, urgent: bool) -> None:
        self.request_soon()
        if urgent:
            self._machine.feed(loop_inputs.LookRequested())

    @property
    def status(self) -> SourceStatus:
        """The status of the repository after the last reconciliation."""
        return self._status.status

    def forget_stored(self) -> None:
        """Reads the stored state again: another process may have written it."""
        self._stored = None

    def forget_reports(self) -> None:
        """Reports commits and signatures again: another replica reported since."""
        self._selector.forget()

    def stop_status(self) -> None:
        """Stops saving the status: another replica does."""
        self._status.stop()

    async def prefetch(self) -> None:
        """Reads the inputs of a reconciliation, without writes.

        A selected revision is kept only if the leader has attempted its commit, because then the
        leader has published its events.
        """
        generation = self._machine.state.generation
        try:
            answer = await source_requests.request_when_due(self._lookup, self._machine, self._tip)
            if answer.error is not None or answer.tip is None:
                raise answer.error or source_requests.no_answer()
            tip = answer.tip
            if self._machine.state.in_sync == loop_state.InSync(tip, generation):
                return
            target = self.target
            stored = await state_store.load(target.cluster, target.namespace, target.owner)
            if self.selected is None or self.selected.tip != tip:
                self.selected = await self._selector.select(tip, stored, Steering())
            if self.selected.prepared is not None:
                bundle = self.selected.prepared.bundle
                located = await live_state.locate(target.cluster, bundle, stored.inventory)
                await self._read(located, {})
            self._tip = tip
            if stored.last_attempted != tip:
                self.selected = None
            self._machine.feed(loop_inputs.Prefetched(tip, generation))
        except errors.GitopsError as error:
            self._machine.feed(loop_inputs.ReconciliationFailed(error, self._machine.chance()))

    async def reconcile(self) -> None:
        """One reconciliation. An error is an outcome: it decides when the next one runs."""
        began, steering = asyncio.get_running_loop().time(), Steering()
        # Before the requests are read: one that arrives later causes another reconciliation.
        generation = self._machine.state.generation
        self._message, self._approval_used = "", False
        try:
            with spans.span("pass", owner=self.target.owner):
                if self._requests.changed:
                    self._stored = None
                steering = await self._requests.read()
                pushed = steering.pushed
                self._machine.feed(loop_inputs.PushReported(pushed, pushed_commit(pushed)))
                await self._reconcile_tip(steering, generation)
                self._status.update(self._facts(), steering)
                await self._answer(steering)
        except errors.NotLeading:
            self._stored = None
        except errors.GitopsError as error:
            self._machine.feed(loop_inputs.ReconciliationFailed(error, self._machine.chance()))
            self._status.update(self._facts(), steering, error)
            with contextlib.suppress(errors.ClusterError):
                self._message = f"failure: {error}"
                await self._answer(steering)
        else:
            self._machine.feed(loop_inputs.Succeeded())
        seconds = asyncio.get_running_loop().time() - began
        well = not self._machine.state.failures.count
        self._emit.always(ReconcileTimed(self._clock(), seconds, well=well))

    async def _reconcile_tip(self, steering: Steering, generation: int) -> None:
        """Keeps the tip applied as far as it is known. Raises the error of Git, or the one that
        only a person can fix, after the cluster is in sync with the last good commit.
        """
        answer = await source_requests.request_when_due(
            self._lookup, self._machine, None if self.selected is None else self._tip
        )
        if answer.current:
            self._status.looked()
        self._reports.resume(steering)
        blocked = await self._keep_applied(answer, steering, generation)
        if error := answer.error or blocked:
            raise error

    async def _keep_applied(
        self, answer: TipAnswer, steering: Steering, generation: int
    ) -> errors.SourceError | None:
        """Applies the tip or the last good commit. The error that only a person can fix, if any."""
        selected = self.selected
        tip = answer.tip or CommitId("")
        is_unknown = not answer.current and (selected is None or selected.kept)  # the tip
        is_open = selected is not None and selected.may_change(answered=answer.current)
        if selected is not None and selected.waiting and answer.current and tip == selected.tip:
            again = await self._recheck(selected, steering)
            selected, is_open = again or selected, is_open or again is None
        if not (is_open and answer.received) and self._is_in_sync(tip):
            if answer.current:
                self._emit(Unchanged(self._clock(), tip))
            self._message = f"success: commit {short(tip)} is unchanged"
            return selected.blocked if selected else None
        self._machine.feed(loop_inputs.Replanned())
        is_open = is_open and (answer.received or self._stored is None)
        stored = self._stored or self._store(await state_store.load_or_create(self.target))
        if is_unknown and stored.last_attempted is None:
            raise answer.error or source_requests.no_answer()
        tip = stored.last_attempted if is_unknown and stored.last_attempted else tip
        hold = revision_selector.hold_reason(tip, steering)
        if selected is None or (selected.tip, selected.held) != (tip, hold) or is_open:
            select = self._selector.keep if is_unknown else self._selector.select
            selected, error = await self._select(select, tip, stored, steering)
        else:
            error = selected.blocked
        self.selected, self._tip = selected, selected.tip
        await self._plan_and_apply(selected, stored, steering, generation)
        return error

    async def _recheck(
        self, selected: SelectedRevision, steering: Steering
    ) -> SelectedRevision | None:
        """The selected revision with the present reason of its wait; None if another one must be
        selected. Raises SourceError.
        """
        state = self._stored or self.last_stored or DeployerState()
        again = await self._selector.recheck(selected, state, steering)
        if again is not None:
            self.selected = again
        return again

    def _is_in_sync(self, tip: CommitId) -> bool:
        """Whether no comparison is needed. Raises ClusterError if the watches are stale."""
        state = self._machine.state
        if not loop_state.is_settled(state, tip, asyncio.get_running_loop().time()):
            return False
        self._caches.require_current()
        return not loop_state.comparison_is_due(state, self._clock())

    async def _select(
        self,
        select: revision_selector.Select,
        tip: CommitId,
        stored: DeployerState,
        steering: Steering,
    ) -> tuple[SelectedRevision, errors.SourceError | None]:
        """The revision for a tip; the previous one if Git does not return the files of the tip."""
        before = self.selected
        try:
            selected = await select(tip, stored, steering)
        except errors.SourceError as error:
            hold = revision_selector.hold_reason(tip, steering)
            if before is None or before.prepared is None or before.held != hold:
                raise
            self._machine.feed(loop_inputs.GitFailed())
            return before, error
        self._machine.feed(loop_inputs.RevisionSelected())
        return selected, selected.blocked

    async def _plan_and_apply(
        self, selected: SelectedRevision, stored: DeployerState, steering: Steering, generation: int
    ) -> None:
        tip, prepared, snapshot = selected.tip, selected.prepared, selected.snapshot
        self._suspended_changes = self._ended = None
        if prepared is None or snapshot is None:
            self._options_now((), steering)
            self._machine.feed(loop_inputs.Settled(tip, generation))
            self._message = reports.without_plan(selected)
            return
        with spans.span("plan", commit=tip):
            located = await live_state.locate(
                self.target.cluster, prepared.bundle, stored.inventory, snapshot.commit
            )
            options = self._options_now(located.bundle.manifests, steering)
            draft = await self._draft(located, options, stored)
        self._reports.skip(draft.plan.refusals)
        if steering.suspended:
            self._store(await plan_execution.compare(self.target, draft, self._emit, self._clock))
            self._message = self._reports.suspend(draft.plan, steering.suspend_reason)
            self._suspended_changes = len(draft.plan.writes)
            self._machine.feed(loop_inputs.Settled(tip, generation))
            return
        if draft.plan.writes and await self._requests.read(refresh=True) != steering:
            # A request arrived meanwhile, maybe to suspend.
            self._machine.feed(loop_inputs.LookRequested())
            return
        if snapshot.commit is not None:
            histories = draft.histories
            halts = halted_rollouts.halted(draft.bundle, draft.inputs.live, histories)
            waiting = waiting_stages.waiting(draft.bundle, draft.inputs.live, histories)
            proven = halted_rollouts.proven(draft.state.templates, histories)
            self.stopped_rollouts = StoppedRollouts(
                snapshot.commit.id, tuple(halts), tuple(waiting), proven
            )
        done = await self._apply(draft, options, steering, tip)
        due = plan_execution.next_comparison(done.state, options, self._clock())
        self._machine.feed(
            loop_inputs.PlanApplied(
                tip,
                generation,
                done.ended.writes,
                done.ended.refusals,
                due,
                self._machine.chance(),
            )
        )

    async def _apply(
        self,
        draft: plan_draft.PlanDraft,
        options: ApplyOptions,
        steering: Steering,
        tip: CommitId,
    ) -> Reconciliation:
        with spans.span("apply", plan=draft.plan.hash):
            done = await plan_execution.carry_out(
                self.target, draft, options, self._report, self._clock
            )
        self._ended = result = done.ended
        self._store(done.state)
        approved = guard_limits.covers(steering.approved, draft.plan.hash)
        is_request = approved and options.approved == steering.approved
        self._message = reports.outcome(tip, result)
        self._approval_used = is_request and bool(result.writes)
        return done

    async def _draft(
        self, located: live_state.LocatedBundle, options: ApplyOptions, stored: DeployerState
    ) -> plan_draft.PlanDraft:
        """The plan, from the objects in the watch cache; deferred objects are not read."""
        live, refused = await self._read(located, options.deferred)
        options = replace(options, deferred={**refused, **options.deferred})
        located = replace(located, causes=await self._causes.of(located, stored, live))
        return await plan_draft.draft_located(
            self.target, located, options, state=stored, live=live
        )

    async def _read(
        self, located: live_state.LocatedBundle, deferred: Mapping[Key, Skipped]
    ) -> tuple[Live, Mapping[Key, Skipped]]:
        """The live objects, and the refusals of those that may not be listed: the other objects of
        the commit, and the templates of others, do not wait for them. Raises ClusterError.
        """
        resources = {key: one for key, one in located.resources.items() if key not in deferred}
        unlisted = await self._caches.unlisted(resources)
        refused = {key: refusals.unlisted(key, str(error)) for key, error in unlisted.items()}
        wanted = {resources[key] for key in located.bundle.manifests.keys() & refused.keys()}
        for key, error in unlisted.items():
            if resources[key] not in wanted:  # an object that left Git, whose state is unknown
                raise error
        readable = {key: one for key, one in resources.items() if key not in refused}
        return await self._caches.live(readable), refused

    def _report(self, event: Event) -> None:
        if isinstance(event, DriftCorrected):
            self._machine.feed(loop_inputs.DriftReverted(event.object))
        self._reports.handle(event)

    def _store(self, state: DeployerState) -> DeployerState:
        self._stored = self.last_stored = state
        return state

    def _options_now(self, keys: Iterable[Key], steering: Steering) -> ApplyOptions:
        """The options of this reconciliation. The other deployers are informed of the keys."""
        now, state = asyncio.get_running_loop().time(), self._machine.state
        options = replace(
            self._options,
            approved=steering.approved or self._options.approved,
            contested=loop_state.contested(state, now),
            deferred=loop_state.deferred(state, now),
            held=steering.held,
            hold_reasons=steering.hold_reasons,
        )
        if self._claimant is None:
            return options
        self._claimant.publish(keys)
        return replace(options, other_owners=self._claimant.other_owners)

    def _facts(self) -> source_status_store.Facts:
        return source_status_store.Facts(
            self.selected, self.last_stored, self._ended, self._suspended_changes
        )

    async def _answer(self, steering: Steering) -> None:
        """Writes the outcome as the response to the request of the reconciliation."""
        message, approval_used = self._message, self._approval_used
        if not message or not (steering.requested or approval_used):
            return
        await self._requests.answer(message, spent=approval_used)
        self._stored = None  # its version has changed
        if steering.requested:
            self._emit(RequestHandled(self._clock(), steering.requested, message))
