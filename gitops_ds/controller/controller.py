"""The controller: each DaemonSet that the observer reports is queued, decided and executed.

It needs no stored state: it can be stopped at any time, and the next one starts from lists and
continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Set

from gitops_ds.controller import conflict_probe, executor, halt_evidence
from gitops_ds.controller.actions import WriteHooks
from gitops_ds.controller.observer import Observer, ObserverHooks
from gitops_ds.controller.watched_ledger import WatchedLedger
from gitops_ds.core.cluster import Cluster, EventType, Listing, WatchEvent
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Action, Decision, ExecutionOutcome, Observation, Powers
from gitops_ds.core.errors import ClusterError
from gitops_ds.core.events.base import Decided, Emit, TaskRestarted
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import DAEMONSET, POD, Key, Resource
from gitops_ds.core.rollouts.staged_rollout import StageInputs
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.competing_controller import CompetingControllers
from gitops_ds.daemonset.memory import Repetition
from gitops_ds.daemonset.shadow import Shadow
from gitops_ds.daemonset.workqueue import WorkQueue
from gitops_ds.kube.apimachinery import foreign_bodies, pods, revisions
from gitops_ds.kube.client.informer import InformerEvent
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.decisions import pinned_pods
from gitops_ds.rollouts.decisions.pinned_pods import StagedDecision
from gitops_ds.rollouts.state import rollout_annotations
from gitops_ds.rollouts.state.attested_records import RecordWrite
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.startup_taints.startup_taints import StartupInputs, StartupTaints

TURNS_AT_ONCE = 8
REQUESTS_AT_ONCE = 16
GATHERED = 0.001  # seconds: an event within this time is covered by the same reconciliation


class Controller:
    """The shell around the decisions, for one cluster. `clock` gives seconds since 1970; delays are
    the event loop's.

    `chance` spreads retries and gives numbers in [0, 1).
    """

    def __init__(
        self,
        cluster: Cluster,
        powers: Powers,
        emit: Emit,
        *,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._cluster, self._powers, self._emit, self._clock = cluster, powers, emit, clock
        hooks = ObserverHooks(self._received, self._wake, self._handled)
        self.observer = Observer(cluster, emit, clock=clock, chance=chance, hooks=hooks)
        self.observer.is_ours = self._is_claimed
        self._rivals = CompetingControllers()
        self._queue: WorkQueue[Key] = WorkQueue()
        self._shadow = Shadow()
        writes = powers is not Powers.OBSERVE
        inputs = StartupInputs(clock, emit, self.observer.pod_warnings.known, writes=writes)
        self.startup_taints = StartupTaints(cluster, self.observer.cache, inputs)
        self._refused: dict[Key, tuple[Action, ...]] = {}
        self._repetitions: dict[Key, Repetition] = {}
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._is_started = False
        self._leadership = Leadership()
        self._claimed: frozenset[str] | None = None
        self._approvers: dict[str, str] = {}  # by owner, as in the annotation
        self._owned: OwnedBodies | None = None
        self._ledger: RolloutLedger | None = None
        self._shown: WatchedLedger | None = None
        self._turns: dict[asyncio.Task[None], float] = {}

    def claim(self, *owners: str, approvers: Iterable[str] = ()) -> None:
        """Limits the rollouts to DaemonSets of these owners and of those claimed before: another
        service paces the others. Without any claim the rollouts of all owners are paced. With
        `approvers` only they approve the stages of these owners.
        """
        self._claimed = (self._claimed or frozenset()) | frozenset(owners)
        self._approvers |= dict.fromkeys(owners, ",".join(sorted(approvers)))
        self._wake(self.observer.keys)

    def own(self, bodies: OwnedBodies) -> None:
        """Limits the rollouts to these DaemonSets: a copied label gives no other one a rollout.
        Only with powers full the others are read whole too. Before `run`.
        """
        self._owned = bodies
        bodies.listen(lambda added: self._wake({key for key in added if key.is_daemonset}))
        if self._powers is not Powers.FULL:
            self.observer.keep_whole(bodies)

    def attest(self, ledger: RolloutLedger) -> None:
        """Counts only the records and annotations in a ledger, of the claimed DaemonSets; before it
        has begun those in the ledger of the replica that leads, of all. Before `run`.
        """
        self._shown = self.observer.follow_ledger(ledger.namespace, self._announced_by_leader)
        self._ledger, ledger.announced = ledger, self.observer.announced
        ledger.existing = lambda: self.observer.cache.uids
        self.observer.cache.attested = self._attested
        self.observer.as_announced = self._as_announced
        self.observer.is_ours = self._is_claimed

    def _counting(self, daemonset: DaemonSet) -> RolloutLedger | None:
        """The ledger that decides what counts of a DaemonSet; None if it is shown only."""
        ledger = self._ledger
        is_begun = ledger is not None and ledger.is_begun
        return ledger if is_begun and self._is_claimed(daemonset) else None

    @property
    def _ledger_of_leader(self) -> WatchedLedger | None:
        """What the replica that leads announced; None for the leader itself."""
        return None if self._ledger is None or self._ledger.is_begun else self._shown

    def _announced_by_leader(self, uids: Set[str]) -> None:
        if self._ledger_of_leader is not None:
            self.observer.announced(uids)

    def _as_announced(self, daemonset: DaemonSet, own_revisions: Iterable[Revision]) -> DaemonSet:
        if (shown := self._ledger_of_leader) is not None:
            return shown.as_announced(daemonset, own_revisions)
        ledger = self._counting(daemonset)
        return daemonset if ledger is None else ledger.as_announced(daemonset, own_revisions)

    def _attested(self, daemonset: DaemonSet, revision: Revision) -> Revision:
        if (shown := self._ledger_of_leader) is not None:
            return shown.attested(daemonset, revision)
        if (ledger := self._counting(daemonset)) is None:
            return revision
        known = self._owners(daemonset) & self._approvers.keys()
        if known:
            approvers = ",".join(filter(None, (self._approvers[owner] for owner in sorted(known))))
            revision = rollout_annotations.approved_by(revision, approvers)
        return ledger.attested(revision)

    async def _announce(
        self, ledger: RolloutLedger, seen: Observation, uid: str, annotation: str, text: str
    ) -> None:
        if self._is_claimed(seen.daemonset):
            present = (
                revisions.annotations_of(revision)
                for revision in seen.revisions
                if revision.uid == uid
            )
            before = str(next(present, {}).get(annotation) or "")
            write = RecordWrite(uid, annotation, text, before)
            await ledger.announce(write)

    def _is_claimed(self, daemonset: DaemonSet) -> bool:
        if (shown := self._ledger_of_leader) is not None and not shown.is_applied(daemonset):
            return False
        if self._claimed is None:
            return True
        if foreign_bodies.is_reduced(daemonset.raw):
            return False
        return not self._claimed.isdisjoint(self._owners(daemonset))

    def _owners(self, daemonset: DaemonSet) -> Set[str]:
        """The owners that applied a DaemonSet; by its label before that was announced."""
        if self._ledger is not None and (announced := self._ledger.owners(daemonset.uid)):
            return announced
        is_owned = self._owned is None or self._owned.has(daemonset.key)
        return {object_owner.owner_of(daemonset.raw)} if is_owned else frozenset()

    @property
    def waiting(self) -> int:
        """The number of DaemonSets that wait for a reconciliation."""
        return len(self._queue)

    @property
    def unready(self) -> str:
        """Why the state of DaemonSets is unknown; empty when everything was listed once."""
        return self.observer.unready

    def follow(self, leadership: Leadership) -> None:
        """Reconciles only while this replica leads. Before `run`."""
        self._leadership = leadership
        leadership.listen(self._lead)
        self.startup_taints.follow(leadership)

    def _lead(self, leads: bool) -> None:
        """Starts reconciliations, for every DaemonSet; or cancels running ones, while the watches
        continue.
        """
        if leads:
            self._wake(self.observer.keys)
            self._wakeup.set()
            return
        self.observer.gates.clear()
        if self._ledger is not None:
            self._ledger.end()
        for turn in self._turns:
            turn.cancel()

    @property
    def seconds_without_progress(self) -> float:
        """The duration of the oldest running reconciliation, in seconds."""
        return asyncio.get_running_loop().time() - min(self._turns.values()) if self._turns else 0.0

    def stop(self) -> None:
        """Completes running reconciliations, starts no other, and ends `run`."""
        self._stopping = True
        self._wakeup.set()

    async def run(self) -> None:
        """Runs until `stop`, or until it is cancelled. Raises Refused when another DaemonSet
        controller appears with powers full.
        """
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(part.run()) for part in (self.observer, self.startup_taints)
            ]
            await self._start_reconciliations()
            for task in beside:
                task.cancel()

    def _received(self, resource: Resource, event: InformerEvent) -> None:
        """Handles an event before it changes an observation."""
        if isinstance(event, Listing | WatchEvent) and (rival := self._rival(resource, event)):
            raise conflict_probe.refusal(rival)
        match event:
            case WatchEvent(type=EventType.DELETED, object=body) if (
                self._powers is Powers.OBSERVE and resource == POD
            ):
                self._shadow.gone(pods.pod_of(body))
            case _:
                pass

    def _handled(self) -> None:
        """Handles the end of an event."""
        self.startup_taints.wake()
        if not self._is_started:
            self._wakeup.set()

    def _rival(self, resource: Resource, event: Listing | WatchEvent) -> str:
        """The field manager of another DaemonSet controller, which no controller with powers full
        works beside.
        """
        is_watched = resource == DAEMONSET and self._powers is Powers.FULL
        return self._rivals.handle(event) if is_watched else ""

    def _wake(self, keys: Collection[Key]) -> None:
        if not keys:
            return
        due = asyncio.get_running_loop().time() + GATHERED
        earlier = [self._queue.add(key, due) for key in sorted(keys)]
        if any(earlier):
            self._wakeup.set()

    async def _start_reconciliations(self) -> None:
        """Starts reconciliations as keys become due, up to the limit."""
        loop = asyncio.get_running_loop()
        await self._first_lists()
        async with asyncio.TaskGroup() as turns:
            room = asyncio.Semaphore(TURNS_AT_ONCE)
            context = executor.ExecutionContext(
                self._cluster,
                self._clock,
                WriteHooks(self.observer.wrote, created=self.observer.rollouts.created),
                self._emit,
                asyncio.Semaphore(REQUESTS_AT_ONCE),
                self.observer.epoch,
                lambda: self._stopping,
            )
            while not self._stopping:
                await room.acquire()
                self._wakeup.clear()
                key = self._queue.take(loop.time()) if self._leadership.leads else None
                if key is not None:
                    turn = turns.create_task(self._turn(context, key))
                    self._turns[turn] = loop.time()
                    turn.add_done_callback(self._turns.pop)
                    turn.add_done_callback(lambda _: room.release())
                    continue
                room.release()
                await self._wait_for_wakeup(
                    self._queue.next_due() if self._leadership.leads else None
                )

    async def _first_lists(self) -> None:
        while not self.observer.cache.synced and not self._stopping:
            self._wakeup.clear()
            await self._wakeup.wait()
        self._is_started = True

    async def _wait_for_wakeup(self, until: float | None) -> None:
        if self._stopping:
            return
        loop = asyncio.get_running_loop()
        alarm = None if until is None else loop.call_at(until, self._wakeup.set)
        await self._wakeup.wait()
        if alarm is not None:
            alarm.cancel()

    async def _turn(self, context: executor.ExecutionContext, key: Key) -> None:
        """One turn. An internal error, which the content of a DaemonSet may cause, is retried as
        any failure of this DaemonSet, and delays no other one.
        """
        failed, reason = False, ""
        try:
            failed = await self._reconcile(context, key)
        except Exception as error:
            failed, reason = True, f"{key}: {type(error).__name__}: {error}"
        finally:
            wait = self._queue.done(key, asyncio.get_running_loop().time(), failed)
            self._wakeup.set()
        if reason:
            self._emit(TaskRestarted(self._clock(), "reconciliation", reason, wait))

    async def _reconcile(self, context: executor.ExecutionContext, key: Key) -> bool:
        """One reconciliation; returns whether it failed, in whole or in part, and must be retried,
        with increasing delays.
        """
        if self._powers is Powers.PACE and not self.observer.is_paced(key):
            self.observer.rollouts.forget(key)
            return False
        seen = self.observer.observe(key)
        if seen is None:
            self._queue.forget(key)
            self._shadow.forget(key)
            self._refused.pop(key, None)
            self._repetitions.pop(key, None)
            self.observer.forget(key)
            return False
        if seen.unlisted:
            return False  # the list of the last kind queues it again
        if self._powers is Powers.OBSERVE:
            self._compare(seen)
            return False
        is_ours = self._is_claimed(seen.daemonset)
        inputs = self.observer.rollouts.inputs_of_turn(seen) if is_ours else None
        if inputs is None:
            return await self._reconcile_unpaced(context, seen)
        is_owned = self._powers is Powers.FULL
        decided = pinned_pods.decide_owned if is_owned else pinned_pods.decide_pinned
        return await self._update_nodes(context, seen, inputs, decided)

    async def _reconcile_unpaced(
        self, context: executor.ExecutionContext, seen: Observation
    ) -> bool:
        """A turn of a DaemonSet without a rollout that we pace: also deletes the gated pods of an
        earlier one.
        """
        is_full = self._powers is Powers.FULL
        decision = decide.decide(seen) if is_full else Decision()
        if self._is_claimed(seen.daemonset) and (gated := self.observer.rollouts.gated(seen)):
            decision = replace(decision, steps=(*decision.steps, gated))
        if not (is_full or decision.steps):
            return False
        self._emit(Decided(seen.now, seen.daemonset.key, decision, True, seen))
        _, failed = await self._perform(context, seen, decision)
        return failed

    async def _update_nodes(
        self,
        context: executor.ExecutionContext,
        seen: Observation,
        inputs: StageInputs,
        decide_staged: Callable[[Observation, StageInputs], StagedDecision],
    ) -> bool:
        """A turn of a DaemonSet with a rollout policy."""
        staged = decide_staged(seen, inputs)
        if not await self.observer.rollouts.admitted(self._cluster, seen, inputs, staged.stages):
            inputs = self.observer.rollouts.inputs(seen) or inputs
            staged = decide_staged(seen, inputs)
        elif nodes := self.observer.rollouts.halting_nodes(
            seen.daemonset.key, inputs, staged.stages
        ):
            seen, read = await halt_evidence.read(self._cluster, self.observer, seen, nodes)
            inputs = read or inputs
            staged = decide_staged(seen, inputs)
        self.observer.rollouts.decided(seen, inputs, staged)
        self._emit(Decided(seen.now, seen.daemonset.key, staged.decision, True, seen))
        outcome, failed = await self._perform(context, seen, staged.decision)
        self.observer.rollouts.performed(seen.daemonset.key, staged.decision, outcome)
        if self._ledger is not None and inputs.target.staged and self._is_claimed(seen.daemonset):
            message = self.observer.rollouts.unrecorded(seen.daemonset.key)
            with contextlib.suppress(ClusterError):  # the next turn repeats it
                await self._ledger.refused(inputs.target.uid, message)
        return failed

    async def _perform(
        self, context: executor.ExecutionContext, seen: Observation, decision: Decision
    ) -> tuple[ExecutionOutcome, bool]:
        """The outcome of a decision, and whether it failed."""
        key = seen.daemonset.key
        self.observer.remember(seen.daemonset, decision)
        if self._ledger is not None:
            announce = functools.partial(self._announce, self._ledger, seen)
            context = replace(context, hooks=replace(context.hooks, announce=announce))
        outcome = await executor.perform(context, seen, decision, self._refused.pop(key, ()))
        if outcome.refused:
            self._refused[key] = outcome.refused
        failed = bool(outcome.errors or outcome.refused) or self._is_futile(key, decision)
        self._requeue(key, decision.wake_after, outcome.wrote and not failed)
        return outcome, failed

    def _is_futile(self, key: Key, decision: Decision) -> bool:
        """Whether the writes of this decision were repeated recently, without effect."""
        repetition = self._repetitions.setdefault(key, Repetition())
        return repetition.note(
            map(executor.target, decision.actions), asyncio.get_running_loop().time()
        )

    def _compare(self, seen: Observation) -> None:
        """A reconciliation without writes: reports the decision, and the comparison with the other
        controller.
        """
        key, decision = seen.daemonset.key, decide.decide(seen)
        event = Decided(seen.now, key, decision, False, seen)
        self._emit(event)
        report = self._shadow.observe(event)
        for record in report.records:
            self._emit(record)
        for wait in (decision.wake_after, report.wake_after):
            self._requeue(key, wait, wrote=False)

    def _requeue(self, key: Key, wake_after: float | None, wrote: bool) -> None:
        """Requeues a DaemonSet after a write, to observe the result; otherwise when the decision
        may change with time.

        An action without effect (a revision that can't be changed) must not be repeated in a loop:
        after a refused action the queue's retry follows, or an earlier time at which the decision
        may change.
        """
        now = asyncio.get_running_loop().time()
        if wrote:
            self._queue.add(key, now)
        elif wake_after is not None:
            self._queue.add(key, now + wake_after)
