"""The deployer's loop: look at Git when asked to, make the cluster so, remember, wait for the next wish.

Whoever wants a pass (the schedule, a webhook, a watch that saw a change) calls `ask`; a wish that comes while a pass goes on is not
lost: it stays set, and the next pass begins at once. An unchanged commit on an unchanged cluster ends after `git ls-remote`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from gitops_ds import errors
from gitops_ds.controller import deploy, live, state
from gitops_ds.controller.caches import Caches
from gitops_ds.controller.deploy import Asked, Place
from gitops_ds.model.deployment import CommitRejected, NewCommit, PassFailed, State, Unchanged
from gitops_ds.model.objects import CommitId
from gitops_ds.model.record import Emit
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.model.trust import SourceVerified, Unverified, VerificationFailed, Verified
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.source.reading import Movement

LONGEST_RETRY = 300.0  # seconds
SETTLE = 0.5  # seconds after a change in the cluster, so that several are looked at together


async def unasked(tip: CommitId, since: CommitId | None) -> None:
    """For a source whose signatures nobody asked for."""


@dataclass(frozen=True, slots=True)
class Source:
    """Git, as the loop needs it: the tip now, a commit's files, how the branch moved, and what the files mean.

    `verify` tells whether a tip, with what came since the last good commit, is signed by whom we trust; nothing of one that isn't
    is read, let alone rendered. None: no signature is asked for.
    """

    tip: Callable[[], Awaitable[CommitId]]
    snapshot: Callable[[CommitId], Awaitable[Snapshot]]
    movement: Callable[[CommitId, CommitId], Awaitable[Movement]]
    prepare: Callable[[Snapshot], Prepared]
    verify: Callable[[CommitId, CommitId | None], Awaitable[Verified | Unverified | None]] = unasked


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds until a failed pass is tried again, the clock (seconds since 1970), and numbers in [0, 1) for jitter."""

    retry: float
    clock: Callable[[], float]
    chance: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a tip of the branch means for the cluster: what is applied, or None where no commit was good yet.

    One that is not `trusted` is looked at again in the next pass: a person may have added its signer.
    """

    tip: CommitId
    prepared: Prepared | None = None
    snapshot: Snapshot | None = None
    trusted: bool = True


class Loop:
    """One repository on one cluster."""

    def __init__(self, source: Source, place: Place, asked: Asked, emit: Emit, timing: Timing) -> None:
        """Nothing runs until `run`."""
        self._source, self._place, self._asked, self._emit, self._timing = source, place, asked, emit, timing
        self._caches = Caches(place.cluster, place.owner, self._stirred, timing.chance)
        self._busy = False
        self._stir = 0
        self._wish = asyncio.Event()
        self._wish.set()
        self._alarm: asyncio.TimerHandle | None = None
        self._failures, self._complaint = 0, ""
        self._stopping = False
        self._state: State | None = None
        self._choice: Choice | None = None
        self._told: CommitId | None = None
        self._distrust = ""
        self._settled: tuple[CommitId, int] | None = None
        self.first_pass = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Whether no pass goes on and none is wished for."""
        return not self._busy and not self._wish.is_set()

    def ask(self) -> None:
        """Wants a pass, now or as soon as the one that goes on is over."""
        self._wish.set()

    def stop(self) -> None:
        """Ends the loop after the pass that goes on."""
        self._stopping = True
        self._wish.set()

    def _stirred(self) -> None:
        self._stir += 1
        self._ask_in(SETTLE)

    def _ask_in(self, seconds: float) -> None:
        """Wants a pass then, unless one is wanted earlier; a pass that begins takes every such wish with it."""
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            if self._alarm.when() <= loop.time() + seconds:
                return
            self._alarm.cancel()
        self._alarm = loop.call_later(seconds, self.ask)

    def _begin(self) -> None:
        self._wish.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def run(self) -> None:
        """Passes, one after the other, until `stop`."""
        try:
            while True:
                await self._wish.wait()
                self._begin()
                if self._stopping:
                    return
                self._busy = True
                await self._pass()
                self._busy = False
                self.first_pass.set()
        finally:
            self._caches.stop()

    async def _pass(self) -> None:
        try:
            left = await self._once()
        except errors.GitopsError as error:
            self._failed(error)
        else:
            self._failures, self._complaint = 0, ""
            if left:
                self._ask_in(self._timing.retry)

    def _failed(self, error: errors.GitopsError) -> None:
        self._failures += 1
        wait = None
        if error.retryable:
            wait = min(self._timing.retry * 2.0 ** min(self._failures - 1, 16), LONGEST_RETRY) * (1 + self._timing.chance() / 10)
            self._ask_in(wait)
        if str(error) != self._complaint:  # said once, not at every tick of the schedule
            self._emit(PassFailed(self._timing.clock(), str(error), wait))
        self._complaint = str(error)
        self._state = None  # somebody may have written it, to agree to a rewind or as another process: it is read again

    async def _once(self) -> bool:
        """One pass; whether something was left that a later pass may do."""
        tip = await self._source.tip()
        stir = self._stir
        if self._choice is not None and not self._choice.trusted:
            self._choice = self._settled = None
        if self._settled == (tip, stir):
            self._emit(Unchanged(self._timing.clock(), tip))
            return False
        known = self._state = self._state or await state.load(self._place.cluster, self._place.namespace, self._place.owner)
        if self._choice is None or self._choice.tip != tip:
            self._choice = await self._choose(tip, known)
        prepared, snapshot = self._choice.prepared, self._choice.snapshot
        if prepared is None or snapshot is None:
            self._settled = (tip, stir)
            return False
        bundle = await live.with_namespaces(self._place.cluster, prepared.bundle)
        resources, _ = await live.resources_of(self._place.cluster, bundle, known.inventory)
        seen = await self._caches.live(resources)
        draft = await deploy.draft_with(self._place, bundle, snapshot.commit, self._asked, known=known, seen=seen)
        ended, self._state = await deploy.carry_out(self._place, draft, self._asked, self._emit, self._timing.clock)
        waiting = any(refusal.guard == "waits" for refusal in ended.refusals)
        if not waiting and not ended.writes:
            self._settled = (tip, stir)
        elif ended.writes:
            self._stirred()  # what was written comes back through the watches; look once more when it has
        return waiting

    async def _choose(self, tip: CommitId, known: State) -> Choice:
        """The tip, if it may be applied; else the last good commit, so that drift is still looked after; else nothing."""
        if not await self._trusts(tip, known):
            return await self._last_good(Choice(tip, trusted=False), known)
        snapshot = await self._source.snapshot(tip)
        movement = await self._movement(known.last_attempted, tip)
        _check_allowed(tip, movement, known)
        prepared = self._source.prepare(snapshot)
        self._tell(snapshot, movement, known, prepared)
        if prepared.deployable:
            return Choice(tip, prepared, snapshot)
        return await self._last_good(Choice(tip), known)

    async def _last_good(self, choice: Choice, known: State) -> Choice:
        if known.last_good is None:
            return choice
        good = await self._source.snapshot(known.last_good)
        prepared = self._source.prepare(good)
        return replace(choice, prepared=prepared, snapshot=good) if prepared.deployable else choice

    async def _trusts(self, tip: CommitId, known: State) -> bool:
        """Whether the tip may be read. Told once: a good one when it is new, the other for each reason."""
        found = await self._source.verify(tip, known.last_good)
        if isinstance(found, Unverified):
            if found.message != self._distrust:
                self._emit(VerificationFailed(self._timing.clock(), found.commit, found.message))
            self._distrust = found.message
            return False
        self._distrust = ""
        if found is not None and tip not in (known.last_attempted, self._told):
            self._emit(SourceVerified(self._timing.clock(), tip, found.signer, found.key, found.checked))
        return True

    def _tell(self, snapshot: Snapshot, movement: Movement, known: State, prepared: Prepared) -> None:
        """Tells a commit once, also when the pass that met it failed later and is taken again."""
        info = snapshot.commit
        if info is None or info.id == self._told:
            return
        self._told = info.id
        if info.id != known.last_attempted:
            self._emit(NewCommit(self._timing.clock(), info.id, info.subject, info.author, movement is Movement.REWRITTEN))
        if not prepared.deployable:
            refused = tuple(finding for finding in prepared.findings if finding.refused)
            self._emit(CommitRejected(self._timing.clock(), info.id, refused))

    async def _movement(self, last: CommitId | None, tip: CommitId) -> Movement:
        if last is None or last == tip:
            return Movement.FORWARD
        try:
            return await self._source.movement(last, tip)
        except errors.RevisionUnknown:  # the old line was removed from the server
            return Movement.REWRITTEN


def _check_allowed(tip: CommitId, movement: Movement, known: State) -> None:
    if held := next((held for held in known.held if held.commit == tip), None):
        raise errors.Refused(f"commit {tip[:12]} is held ({held.reason}): the last good one stays")
    if movement is Movement.REWOUND:
        raise errors.HistoryRewound(
            f"the branch went back from {(known.last_attempted or '')[:12]} to {tip[:12]}, an older commit: nothing is applied "
            f"until a newer one comes, or somebody agrees by `gitops-ds apply --revision {tip[:12]}`"
        )
