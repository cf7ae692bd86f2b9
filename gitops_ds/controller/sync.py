"""The deployer's loop: look at Git when asked to, make the cluster so, remember, wait for the next wish.

Whoever wants a pass (the schedule, a webhook, a watch that saw a change) calls `ask`; a wish that comes while a pass goes on is not
lost: it stays set, and the next pass begins at once. An unchanged commit on an unchanged cluster ends after `git ls-remote`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gitops_ds import errors
from gitops_ds.controller import deploy, live, state
from gitops_ds.controller.caches import Caches
from gitops_ds.controller.deploy import Asked, Place
from gitops_ds.model.deployment import CommitRejected, NewCommit, PassFailed, State
from gitops_ds.model.objects import CommitId
from gitops_ds.model.record import Emit
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.source.reading import Movement

LONGEST_RETRY = 300.0  # seconds
SETTLE = 0.5  # seconds after a change in the cluster, so that several are looked at together


@dataclass(frozen=True, slots=True)
class Source:
    """Git, as the loop needs it: the tip now, a commit's files, how the branch moved, and what the files mean."""

    tip: Callable[[], Awaitable[CommitId]]
    snapshot: Callable[[CommitId], Awaitable[Snapshot]]
    movement: Callable[[CommitId, CommitId], Awaitable[Movement]]
    prepare: Callable[[Snapshot], Prepared]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds until a failed pass is tried again, the clock (seconds since 1970), and numbers in [0, 1) for jitter."""

    retry: float
    clock: Callable[[], float]
    chance: Callable[[], float]


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
        self._failures, self._complaint = 0, ""
        self._stopping = False
        self._state: State | None = None
        self._prepared: tuple[CommitId, Prepared, Snapshot] | None = None
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
        asyncio.get_running_loop().call_later(SETTLE, self.ask)

    async def run(self) -> None:
        """Passes, one after the other, until `stop`."""
        try:
            while True:
                await self._wish.wait()
                self._wish.clear()
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
            self._failures, self._complaint = 0, ""
            if left:
                self._again(self._timing.retry)
        except errors.GitopsError as error:
            self._failures += 1
            wait = min(self._timing.retry * 2 ** (self._failures - 1), LONGEST_RETRY) if error.retryable else None
            wait = None if wait is None else wait * (1 + self._timing.chance() / 10)
            if str(error) != self._complaint:  # said once, not at every tick of the schedule
                self._emit(PassFailed(self._timing.clock(), str(error), wait))
            self._complaint = str(error)
            if isinstance(error, errors.Conflict | errors.Expired):
                self._state = None  # somebody else wrote it: read it again
            if wait is not None:
                self._again(wait)

    def _again(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.ask)

    async def _once(self) -> bool:
        """One pass; whether something was left that a later pass may do."""
        tip = await self._source.tip()
        stir = self._stir
        if self._settled == (tip, stir):
            return False
        known = self._state = self._state or await state.load(self._place.cluster, self._place.namespace, self._place.owner)
        prepared, snapshot = await self._what_to_apply(tip, known)
        if prepared is None or snapshot is None:
            self._settled = (tip, stir)
            return False
        resources, _ = await live.resources_of(self._place.cluster, prepared.bundle, known.inventory)
        seen = await self._caches.live(resources)
        draft = await deploy.draft_with(self._place, prepared.bundle, snapshot.commit, self._asked, known=known, seen=seen)
        ended, self._state = await deploy.carry_out(self._place, draft, self._asked, self._emit, self._timing.clock)
        waiting = any(refusal.guard == "waits" for refusal in ended.refusals)
        if not waiting and not ended.writes:
            self._settled = (tip, stir)
        elif ended.writes:
            self._stirred()  # what was written comes back through the watches; look once more when it has
        return waiting

    async def _what_to_apply(self, tip: CommitId, known: State) -> tuple[Prepared | None, Snapshot | None]:
        """The tip, if it may be applied; else the last good commit, which stays; else nothing."""
        if self._prepared is None or self._prepared[0] != tip:
            await self._meet(tip, known)
        if self._prepared is None:
            return None, None
        return self._prepared[1], self._prepared[2]

    async def _meet(self, tip: CommitId, known: State) -> None:
        last = known.last_attempted
        snapshot = await self._source.snapshot(tip)
        if held := next((held for held in known.held if held.commit == tip), None):
            raise errors.Refused(f"commit {tip[:12]} is held ({held.reason}): the last good one stays")
        movement = await self._movement(last, tip)
        if movement is Movement.REWOUND:
            raise errors.HistoryRewound(
                f"the branch went back from {(last or '')[:12]} to {tip[:12]}, an older commit: nothing is applied until a newer "
                f"one comes, or somebody agrees by `gitops-ds apply --revision {tip[:12]}`"
            )
        info = snapshot.commit
        if tip != last and info is not None:
            self._emit(NewCommit(self._timing.clock(), tip, info.subject, info.author, movement is Movement.REWRITTEN))
        prepared = self._source.prepare(snapshot)
        if prepared.deployable:
            self._prepared = (tip, prepared, snapshot)
            return
        refused = tuple(finding for finding in prepared.findings if finding.refused)
        self._emit(CommitRejected(self._timing.clock(), tip, refused))
        await self._stay_at(known.last_good, tip)

    async def _movement(self, last: CommitId | None, tip: CommitId) -> Movement:
        if last is None or last == tip:
            return Movement.FORWARD
        try:
            return await self._source.movement(last, tip)
        except errors.RevisionUnknown:  # the old line was removed from the server
            return Movement.REWRITTEN

    async def _stay_at(self, good: CommitId | None, tip: CommitId) -> None:
        """Goes on with the last good commit under the name of the tip, so that drift is still looked after."""
        self._prepared = None
        if good is None:
            return
        snapshot = await self._source.snapshot(good)
        prepared = self._source.prepare(snapshot)
        if prepared.deployable:
            self._prepared = (tip, prepared, snapshot)
