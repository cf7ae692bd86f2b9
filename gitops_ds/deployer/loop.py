"""The deployer's loop: look at Git when asked to, make the cluster so, remember, wait for the next
wish.

The schedule, a webhook and a request call `ask`, a watch that saw a change `stirred`, which does
not ask Git. A wish that comes while a pass goes on is not lost: it stays set, and the next pass
begins at once. An unchanged commit on an unchanged cluster ends after `git ls-remote`. While Git
gives no answer the commit that is known is kept applied; before its first answer, the one that was
applied last.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from gitops_ds import errors
from gitops_ds.client.supervisor import Supervisor, ended
from gitops_ds.deployer import (
    deletion_contents,
    live_state,
    reconcile,
    report_once,
    revision_selector,
    source_status_store,
    state_store,
)
from gitops_ds.deployer.object_claims import Claimant, Claims, Rank
from gitops_ds.deployer.reconcile import ApplyOptions, DeployTarget
from gitops_ds.deployer.report_once import DeduplicatingEmitter
from gitops_ds.deployer.requests import Requests, pushed_commit
from gitops_ds.deployer.revision_selector import Choosing, RevisionSource, SelectedRevision
from gitops_ds.deployer.tip_lookup import Looks, Seen
from gitops_ds.deployer.watch_cache import Caches
from gitops_ds.model.bundle import Manifest, Pool
from gitops_ds.model.change import Refusal
from gitops_ds.model.control_requests import Steering
from gitops_ds.model.deployment import State
from gitops_ds.model.events.base import Emit, Record
from gitops_ds.model.events.deployer import (
    DriftCorrected,
    GitTook,
    PassEnded,
    PassFailed,
    PassTook,
    SourceChanged,
    Unchanged,
)
from gitops_ds.model.events.requests import Handled, PassedOn
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.source_status import SourceStatus
from gitops_ds.plan import approval, drift_damping
from gitops_ds.telemetry import spans

P = ParamSpec("P")
T = TypeVar("T")
LONGEST_RETRY = 300.0  # seconds
# seconds at most while the API server is away: it shall find us soon, and each try is one request
CLUSTER_RETRY = 12.0
RETURNING = 60.0  # seconds after an API server gave no answer
VISIBLE_WITHIN = 30.0  # seconds from a push to when the Git server shows it
SETTLE = 0.5  # seconds after a change in the cluster, so that several are looked at together


@dataclass(frozen=True, slots=True)
class LoopTiming:
    """Seconds until a failed pass is tried again, the clock (seconds since 1970), and numbers in
    [0, 1) for jitter.
    """

    retry: float
    clock: Callable[[], float]
    chance: Callable[[], float]


class Loop:
    """One repository on one cluster."""

    def __init__(
        self,
        source: RevisionSource,
        place: DeployTarget,
        asked: ApplyOptions,
        emit: Emit,
        timing: LoopTiming,
    ) -> None:
        """Nothing runs until `run`."""
        self._source = replace(
            source,
            tip=self._timed("tip", source.tip),
            snapshot=self._timed("snapshot", source.snapshot),
        )
        self._asked, self._emit, self._timing = asked, self._say, timing
        self._given, self._acting = emit, True
        self._going: asyncio.Task[None] | None = None
        self._choosing = Choosing(self._source, self._emit, timing.clock)
        self._supervisor = Supervisor(emit, timing.clock)
        self._said = DeduplicatingEmitter(self._emit, timing.clock)
        self._looks = Looks(self._source.tip, self._wish_for, always=source.watched)
        self._tip: CommitId | None = None
        self._damped: drift_damping.Rows = {}
        self._caches = Caches(
            place.cluster, place.owner, self.stirred, timing.chance, self._supervisor
        )
        listed = deletion_contents.ContentsCache(lambda: asyncio.get_running_loop().time())
        self._place = replace(
            place, clock=timing.clock, wrote=self._caches.wrote, contents=listed.read
        )
        self._requests = Requests(
            place.cluster, (place.namespace, place.owner), self._requested, timing.chance
        )
        self._saver = source_status_store.Saver(
            place.cluster, (place.namespace, place.owner), timing.clock
        )
        self._status = SourceStatus(
            place.owner, place.repository, source.branch, since=timing.clock()
        )
        self._ended: PassEnded | None = None
        self._waiting: int | None = None
        self._expected: tuple[CommitId, float] | None = None
        self._pushed: str | None = None
        self._outcome, self._spent = "", False
        self._busy = False
        self._stir = 0
        self._wish = asyncio.Event()
        self._wish.set()
        self._alarm: asyncio.TimerHandle | None = None
        self._failures, self._complaint = 0, ""
        self._away = -math.inf
        self._stopping = False
        self._state: State | None = None
        self._left: State | None = None
        self._choice: SelectedRevision | None = None
        self._settled: tuple[CommitId, int] | None = None
        self._compared, self._due = 0.0, math.inf
        self._tries, self._again = 0, math.inf
        self._held_off, self._retry_at = 0.0, 0.0
        self._deferred: Mapping[Key, Refusal] = {}
        self._member: Claimant | None = None
        self._moved = 0.0
        self.first_pass = asyncio.Event()

    def _timed(self, of: str, talk: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """The same talk with Git; how long it took is told."""

        async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            began, well = asyncio.get_running_loop().time(), False
            try:
                with spans.span("git", of=of):
                    found = await talk(*args, **kwargs)
                well = True
                return found
            finally:
                self._given(
                    GitTook(self._timing.clock(), asyncio.get_running_loop().time() - began, well)
                )

        return timed

    @property
    def remembers(self) -> State | None:
        """What the last pass left, None before the first one."""
        self._left = self._state or self._left
        return self._left

    @property
    def status(self) -> SourceStatus | None:
        """How the cluster relates to the repository; None while another replica leads."""
        return self._status if self._acting else None

    def _judge(self, steering: Steering, error: errors.GitopsError | None = None) -> None:
        """The status after a pass. A Git server that gave no answer stays unreachable until it
        gives one.
        """
        if error is None and self._looks.failing:
            return
        before, now = self._status, self._timing.clock()
        facts = source_status_store.Facts(self._choice, self.remembers, self._ended, self._waiting)
        self._status = source_status_store.after(before, facts, steering, error, now)
        changed = self._status != replace(before, looked=self._status.looked)
        self._saver.show(self._status, write=changed)
        if changed:
            self._emit(SourceChanged(now, self._status, before.condition))

    def _say(self, told: Record) -> None:
        """Of a commit only the leader tells; that something fails is told by each."""
        self._moved = asyncio.get_running_loop().time()
        if self._acting or isinstance(told, PassFailed):
            self._given(told)

    @property
    def standing_for(self) -> float:
        """For how many seconds the pass that goes on has told nothing."""
        return asyncio.get_running_loop().time() - self._moved if self._busy else 0.0

    def act(self) -> None:
        """Takes passes, from now on, and one at once; so it is at the beginning."""
        self._acting = True
        self._state = self._settled = None  # another may have written since
        self._choosing.forget()
        self.ask()

    def rest(self) -> None:
        """Takes no pass until `act`, and drops the one that goes on; it only keeps what one needs
        at hand.
        """
        self._acting = False
        self._saver.rest()
        if self._going is not None:
            self._going.cancel()

    @property
    def owner(self) -> str:
        """The id under which it owns objects."""
        return self._place.owner

    @property
    def wanted(self) -> Mapping[Key, Manifest]:
        """What the commit that is kept applied wants; nothing before the first pass."""
        prepared = self._choice.prepared if self._choice else None
        return prepared.bundle.manifests if prepared else {}

    @property
    def pools(self) -> Sequence[Pool]:
        """The node pools that the file of the cluster names."""
        prepared = self._choice.prepared if self._choice else None
        return tuple(prepared.bundle.cluster.pools) if prepared else ()

    @property
    def idle(self) -> bool:
        """Whether no pass goes on and none is wished for."""
        return not self._busy and not self._wish.is_set()

    def ask(self) -> None:
        """Wants a pass that looks at Git, now or as soon as the one that goes on is over."""
        self._looks.want()
        self._wish_for()

    def _wish_for(self) -> None:
        self._wish.set()

    def expect(self, commit: CommitId | None) -> None:
        """Wants a pass, and some more until the server shows the commit: it may tell of a push
        before it shows it.
        """
        self._expected = (commit, asyncio.get_running_loop().time()) if commit else self._expected
        self.ask()

    def _hear_of(self, pushed: str) -> None:
        """A push that another replica was told of; what stood there when the first pass began is
        over.
        """
        if self._pushed is not None and pushed not in ("", self._pushed):
            self._emit(PassedOn(self._timing.clock(), commit := pushed_commit(pushed)))
            self.expect(commit)
        self._pushed = pushed

    def _requested(self, urgent: bool) -> None:
        self.stirred()
        if urgent:
            self.ask()

    def stop(self) -> None:
        """Ends the loop after the pass that goes on."""
        self._stopping = True
        self._wish.set()

    def join(self, claims: Claims, rank: Rank) -> None:
        """Beside other deployers, with which it never fights over an object."""
        self._member = claims.join(self._place.owner, rank, self.stirred)

    def stirred(self) -> None:
        """Something changed that a plan looks at: wants a pass soon, so that several changes are
        looked at together.

        While the API server refuses what each pass asks, a change in the cluster wakes it no sooner
        than its back-off.
        """
        self._stir += 1
        self._ask_in(max(SETTLE, self._held_off - asyncio.get_running_loop().time()))

    def _ask_in(self, seconds: float) -> None:
        """Wants a pass then, unless one is wanted earlier; a pass that begins takes every such wish
        with it.
        """
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            if self._alarm.when() <= loop.time() + seconds:
                return
            self._alarm.cancel()
        self._alarm = loop.call_later(seconds, self._wish_for)

    def _begin(self) -> None:
        self._wish.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def run(self) -> None:
        """Passes, one after the other, until `stop`."""
        watching = self._supervisor.start("watch requests", self._requests.run)
        saving = self._supervisor.start("source status", self._saver.run)
        try:
            while True:
                await self._wish.wait()
                self._begin()
                if self._stopping:
                    return
                self._busy, self._moved = True, asyncio.get_running_loop().time()
                await (self._pass_while_acting() if self._acting else self._warm())
                self._busy = False
                self.first_pass.set()
        finally:
            await ended(watching, saving)
            if self._acting:
                await self._saver.end()
            await self._looks.close()
            await self._caches.stop()

    async def _pass_while_acting(self) -> None:
        self._going = going = asyncio.create_task(self._pass())
        try:
            await asyncio.wait((going,))
            if not going.cancelled():
                going.result()
        finally:
            await ended(going)

    async def _warm(self) -> None:
        """Reads what a pass reads. A choice is kept when the leader has met its commit, for it told
        of that.
        """
        stir = self._stir
        try:
            seen = await self._looks.look(self._tip)
            if seen.error is not None or seen.tip is None:
                raise seen.error or errors.SourceUnreachable("the Git server gave no answer yet")
            if self._settled == (tip := seen.tip, stir):
                return
            known = await state_store.load(
                self._place.cluster, self._place.namespace, self._place.owner
            )
            if self._choice is None or self._choice.tip != tip:
                self._choice = await self._choosing.choose(tip, known, "")
            if self._choice.prepared is not None:
                bundle = await live_state.with_namespaces(
                    self._place.cluster, self._choice.prepared.bundle
                )
                await self._caches.live(
                    (await live_state.resources_of(self._place.cluster, bundle, known.inventory))[0]
                )
            self._tip = tip
            if known.last_attempted != tip:
                self._choice = None
            self._failures, self._complaint = 0, ""
            # Whose turn came meanwhile has looked only; nothing is settled before a pass.
            self._settled = None if self._acting else (tip, stir)
        except errors.GitopsError as error:
            self._failed(error)

    async def _pass(self) -> None:
        began, self._outcome, self._spent, steering = (
            asyncio.get_running_loop().time(),
            "",
            False,
            Steering(),
        )
        try:
            with spans.span("pass", owner=self._place.owner):
                if self._requests.changed:
                    self._state = None  # and so it is read again
                steering = await self._requests.look()
                self._hear_of(steering.pushed)
                await self._once(steering)
                self._judge(steering)
                await self._answer(steering)
        except errors.NotLeading:
            self._state = None
        except errors.GitopsError as error:
            self._failed(error)
            self._judge(steering, error)
            with contextlib.suppress(errors.ClusterError):
                self._outcome = f"failure: {error}"
                await self._answer(steering)
        else:
            self._held_off = 0.0
            if not self._looks.failing:
                self._failures, self._complaint = 0, ""
        now = asyncio.get_running_loop().time()
        # This pass took the alarms of others with it.
        for due in (self._again, self._looks.due):
            if now < due < math.inf:
                self._ask_in(due - now)
        took = now - began
        self._given(PassTook(self._timing.clock(), took, well=not self._failures))

    def _failed(self, error: errors.GitopsError) -> None:
        self._failures += 1
        now, wait = asyncio.get_running_loop().time(), None
        is_away = isinstance(error, errors.ClusterUnreachable | errors.ServerFault)
        self._away = now if is_away else self._away
        # An API server that comes back refuses us until it knows our rights again.
        is_returning = isinstance(error, errors.ClusterError) and now - self._away < RETURNING
        if error.retryable or is_returning:
            longest = CLUSTER_RETRY if is_returning else LONGEST_RETRY
            self._ask_in(wait := self._later(self._failures, longest))
            if isinstance(error, errors.SourceError):
                self._looks.want(wait)
        if isinstance(error, errors.ClusterError) and self._failures > 1:
            self._held_off = now + (wait or self._later(self._failures))
        if str(error) != self._complaint:  # said once, not at every tick of the schedule
            self._emit(PassFailed(self._timing.clock(), str(error), wait))
        self._complaint = str(error)
        self._left = self.remembers
        # somebody may have written it, to agree to a rewind or as another process: it is read again
        self._state = None

    def _later(self, tries: int, longest: float = LONGEST_RETRY) -> float:
        """Seconds until the next try, after so many that failed."""
        return min(self._timing.retry * 2.0 ** min(tries - 1, 16), longest) * (
            1 + self._timing.chance() / 10
        )

    def _try_again(self, refusals: Sequence[Refusal]) -> None:
        """When what a pass left undone is tried again: soon what waits for others, later and later
        what was refused.
        """
        now = asyncio.get_running_loop().time()
        deferred = {
            refusal.key: refusal
            for refusal in refusals
            if refusal.key and reconcile.is_tried_again(refusal)
        }
        if now < self._retry_at and deferred.keys() <= self._deferred.keys():
            # a pass that something else woke: what was refused was not tried
            self._again = self._retry_at
            return
        self._tries = self._tries + 1 if reconcile.may_pass(refusals) else 0
        self._retry_at, self._deferred = 0.0, {}
        if self._tries:
            self._again = now + self._later(self._tries)
            if self._tries > 1:
                self._retry_at, self._deferred = self._again, deferred
        elif any(refusal.guard == "waits" for refusal in refusals):
            self._again = now + self._timing.retry
        waiting = [
            refusal.key for refusal in refusals if refusal.guard == "contested" and refusal.key
        ]
        self._again = min(self._again, drift_damping.due(self._damped, waiting))

    async def _answer(self, steering: Steering) -> None:
        """Tells whoever asked for the pass that it is over, and how it ended."""
        if not self._outcome or not (steering.requested or self._spent):
            return
        await self._requests.answer(self._outcome, spent=self._spent)
        self._state = None  # its version is another now
        if steering.requested:
            self._emit(Handled(self._timing.clock(), steering.requested, self._outcome))

    def _look_again(self, tip: CommitId) -> None:
        """Looks again for a pushed commit, later and later, while the server may not show it yet."""
        if self._expected is None:
            return
        commit, since = self._expected
        waited = asyncio.get_running_loop().time() - since
        if tip == commit or waited >= VISIBLE_WITHIN:
            self._expected = None
        else:
            self._looks.want(wait := min(max(waited, 0.5), VISIBLE_WITHIN - waited + 0.1))
            self._ask_in(wait)

    async def _once(self, steering: Steering) -> None:
        """One pass: what Git says, as far as it says something, and the cluster made so."""
        seen = await self._looks.look(None if self._choice is None else self._tip)
        if seen.tip is not None and seen.answered:
            self._look_again(seen.tip)
            self._status = replace(self._status, looked=self._timing.clock())
        self._said.steered(steering)
        blocked = await self._keep_up(seen, steering)
        if error := seen.error or blocked:
            raise error

    async def _keep_up(self, seen: Seen, steering: Steering) -> errors.SourceError | None:
        """Makes the cluster as the tip says, or the last good commit. The error that only people
        can mend, if any.
        """
        stir, now, tip = self._stir, asyncio.get_running_loop().time(), seen.tip or CommitId("")
        choice = self._choice
        is_unknown = not seen.answered and (choice is None or choice.kept)  # the tip
        is_open = choice is not None and (
            not choice.trusted or choice.blocked is not None or (choice.kept and seen.answered)
        )
        if is_open and seen.asked:
            self._settled = None
        # A clock that was put back compares, rather than wait for a moment that is far away now.
        settled = self._settled == (tip, stir) and now < self._again
        if settled:
            self._caches.require_current()
        if settled and self._compared <= self._timing.clock() < self._due:
            if seen.answered:
                self._emit(Unchanged(self._timing.clock(), tip))
            self._outcome = f"success: commit {tip[:12]} is unchanged"
            return choice.blocked if choice else None
        self._settled, self._again = None, math.inf
        is_open = is_open and (seen.asked or self._state is None)
        known = self._state = self._state or await self._load()
        if is_unknown and known.last_attempted is None:
            raise seen.error or errors.SourceUnreachable("the Git server gave no answer yet")
        tip = known.last_attempted if is_unknown and known.last_attempted else tip
        asked = (tip, known, revision_selector.held(tip, known, steering))
        choose = self._choosing.keep if is_unknown else self._choosing.choose
        choice, error = await self._chosen(choose, asked, choice, anew=is_open)
        self._choice, self._tip = choice, choice.tip
        await self._carry_out(choice, known, steering, stir)
        return error

    async def _chosen(
        self,
        choose: revision_selector.Choose,
        asked: tuple[CommitId, State, str],
        before: SelectedRevision | None,
        *,
        anew: bool,
    ) -> tuple[SelectedRevision, errors.SourceError | None]:
        """The choice for a tip, as it is or made anew; the one before where Git does not give the
        files of the tip.
        """
        tip, known, held = asked
        if before is not None and (before.tip, before.held) == (tip, held) and not anew:
            return before, before.blocked
        try:
            choice = await choose(tip, known, held)
        except errors.SourceError as error:
            if before is None or before.prepared is None or before.held != held:
                raise
            self._looks.failing = True
            return before, error
        self._tries, self._retry_at = 0, 0.0
        return choice, choice.blocked

    async def _carry_out(
        self, choice: SelectedRevision, known: State, steering: Steering, stir: int
    ) -> None:
        """Plans and applies what was chosen."""
        tip, prepared, snapshot = choice.tip, choice.prepared, choice.snapshot
        self._waiting = self._ended = None
        if prepared is None or snapshot is None:
            self._asks((), steering)
            self._settled = (tip, stir)
            why = "held" if choice.held else "not applied, and there is no earlier good one"
            self._outcome = f"failure: commit {tip[:12]} is {why}"
            return
        with spans.span("plan", commit=tip):
            bundle = await live_state.with_namespaces(self._place.cluster, prepared.bundle)
            resources, _ = await live_state.resources_of(
                self._place.cluster, bundle, known.inventory
            )
            asked = self._asks(bundle.manifests, steering)
            seen = await self._caches.live(
                {key: resource for key, resource in resources.items() if key not in asked.deferred}
            )
            draft = await reconcile.draft_with(
                self._place, bundle, snapshot.commit, asked, known=known, seen=seen
            )
        self._said.withheld(draft.plan.refusals)
        if steering.suspended:
            self._state = await reconcile.compare(
                self._place, draft, self._emit, self._timing.clock
            )
            self._outcome, self._waiting = self._said.suspended(draft.plan), len(draft.plan.writes)
            self._settled = (tip, stir)
            return
        if draft.plan.writes and await self._requests.look(anew=True) != steering:
            self.ask()  # somebody asked for something meanwhile, maybe to write nothing
            return
        with spans.span("apply", plan=draft.plan.hash):
            ended, self._state = await reconcile.carry_out(
                self._place, draft, asked, self._hear, self._timing.clock
            )
        self._ended = ended
        covered = approval.covers(steering.approved, draft.plan.hash)
        self._spent = covered and asked.approved == steering.approved and bool(ended.writes)
        self._outcome = report_once.outcome(tip, ended)
        self._compared = self._timing.clock()
        self._due = reconcile.due(self._state, asked, self._compared)
        self._try_again(ended.refusals)
        if ended.writes:
            # what was written comes back through the watches; look once more when it has
            self.stirred()
        else:
            self._settled = (tip, stir)

    def _hear(self, told: Record) -> None:
        if isinstance(told, DriftCorrected):
            now, longest = asyncio.get_running_loop().time(), self._asked.compare_every
            self._damped = drift_damping.corrected(
                self._damped, (told.object,), now, (self._timing.retry, longest)
            )
        self._said.hear(told)

    async def _load(self) -> State:
        """The state; a new one is written at once, for it is where requests are put."""
        place = self._place
        known = await state_store.load(place.cluster, place.namespace, place.owner)
        if known.version:
            return known
        return await state_store.save(
            place.cluster, place.namespace, place.owner, replace(known, repository=place.repository)
        )

    def _asks(self, named: Iterable[Key], steering: Steering) -> ApplyOptions:
        """What is asked of this pass, among the neighbours, who hear what is named."""
        now = asyncio.get_running_loop().time()
        asked = replace(
            self._asked,
            approved=steering.approved or self._asked.approved,
            contested=drift_damping.contested(self._damped, now),
            deferred=self._deferred if now < self._retry_at else {},
        )
        if self._member is None:
            return asked
        self._member.name(named)
        return replace(asked, neighbours=self._member.neighbours)
