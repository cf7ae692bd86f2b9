"""The controller: four watches feed the cache, keys wait in the queue, each turn observes, decides
and performs.

It holds nothing of value: stopped at any instant, the next one starts from lists and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from enum import StrEnum

from gitops_ds.apimachinery import pods
from gitops_ds.client import informer
from gitops_ds.client.informer import Failing, InformerEvent, WorldVersion
from gitops_ds.controller import conflict_probe, executor
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.cache import WATCHED, Cache
from gitops_ds.daemonset.competing_controller import Rivals
from gitops_ds.daemonset.futile_writes import Repetition
from gitops_ds.daemonset.node_room import NodeCapacity
from gitops_ds.daemonset.shadow import Shadow
from gitops_ds.daemonset.workqueue import WorkQueue
from gitops_ds.model.cluster import Cluster, EventType, Listing, Selection, WatchEvent
from gitops_ds.model.decision import Action, Decision, Observation
from gitops_ds.model.events.base import Decided, Emit, Listed, WatchFailed
from gitops_ds.model.objects import DAEMONSET, NODE, POD, Body, Key, Resource

TURNS_AT_ONCE = 8
REQUESTS_AT_ONCE = 16
GATHERED = 0.001  # seconds: what comes right behind a piece of news is looked at in the same turn
# seconds: so often the nodes are listed and every DaemonSet is looked at, whatever the watches say
LIST_NODES_AGAIN = 300.0


class Powers(StrEnum):
    """What the controller may do. Deciding is the same in all of them.

    OBSERVE decides and performs nothing; PACE acts only for agents with a rollout policy; FULL is
    the cluster's only DaemonSet controller.
    """

    OBSERVE = "observe"
    PACE = "pace"
    FULL = "full"


class Controller:
    """The shell around the core, for one cluster. `clock` gives seconds since 1970; waiting is the
    event loop's.

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
        self._cluster, self._powers, self._emit = cluster, powers, emit
        self._clock, self._chance = clock, chance
        self._cache = Cache()
        self._rivals = Rivals()
        self._rooms: NodeCapacity | None = None
        self._own_node = ""
        self._queue: WorkQueue[Key] = WorkQueue()
        self._shadow = Shadow()
        self._refused: dict[Key, tuple[Action, ...]] = {}
        self._repetitions: dict[Key, Repetition] = {}
        self._news = asyncio.Event()
        self._listeners: list[Callable[[Set[Key]], None]] = []
        self._heard: dict[Resource, float] = {}
        self._stopping = False
        self._leading = True
        self._turns: dict[asyncio.Task[None], float] = {}
        self.synced = asyncio.Event()

    def place_directly(self) -> None:
        """Makes the controller bind pods to their nodes itself, where they fit: for clusters
        without a scheduler. Before `run`.
        """
        self._rooms = NodeCapacity()

    def runs_on(self, node: str) -> None:
        """Says where we run ourselves: what is below our own feet is replaced last. Before `run`."""
        self._own_node = node

    def observe(self, key: Key) -> Observation | None:
        """What is known about a DaemonSet now; None when there is none, or the lists were not read
        yet.
        """
        seen = self._cache.observe(key, self._clock())
        if seen is None or not (self._own_node or self._rooms is not None):
            return seen
        return replace(
            seen, own_node=self._own_node, rooms=None if self._rooms is None else self._rooms.look()
        )

    @property
    def keys(self) -> tuple[Key, ...]:
        """The DaemonSets of the cluster, sorted."""
        return self._cache.keys

    def listen(self, moved: Callable[[Set[Key]], None]) -> None:
        """`moved` is told, as it happens, whose observation changed; it must be quick."""
        self._listeners.append(moved)

    @property
    def waiting(self) -> int:
        """How many DaemonSets wait for a turn."""
        return len(self._queue)

    @property
    def ages(self) -> Mapping[str, float]:
        """For how many seconds nothing was heard of each watch, by the plural of its kind;
        bookmarks come every minute or so.
        """
        now = asyncio.get_running_loop().time()
        return {resource.plural: now - heard for resource, heard in self._heard.items()}

    @property
    def unready(self) -> str:
        """Why nothing can be said of DaemonSets yet; nothing when all was listed once."""
        return "" if self.synced.is_set() else "the first lists are not read"

    def start_leading(self) -> None:
        """Takes turns, from now on, for every DaemonSet; so it is at the beginning."""
        self._leading = True
        self._wake(set(self.keys))

    def stop_leading(self) -> None:
        """Takes no turn until `act`, and drops those that go on; what the watches tell is kept all
        the same.
        """
        self._leading = False
        for turn in self._turns:
            turn.cancel()

    @property
    def seconds_without_progress(self) -> float:
        """For how many seconds the oldest turn goes on."""
        return asyncio.get_running_loop().time() - min(self._turns.values()) if self._turns else 0.0

    def stop(self) -> None:
        """Lets the turns that go on come to their end, begins no other, and makes `run` return."""
        self._stopping = True
        self._news.set()

    async def run(self) -> None:
        """Runs until `stop`, or until it is cancelled. Raises Refused when another full controller
        turns up beside powers full.
        """
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(self._watch(resource)) for resource in WATCHED]
            await self._take_turns()
            for task in watches:
                task.cancel()

    async def _watch(self, resource: Resource) -> None:
        def hear(told: InformerEvent) -> None:
            self._hear(resource, told)

        def asking() -> None:
            self._cache.asks(resource)

        which = Selection(brief=self._rooms is None)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIST_NODES_AGAIN if resource == NODE else None):
                    await informer.run(
                        self._cluster,
                        resource,
                        which,
                        hear,
                        random=self._chance,
                        before_list=asking,
                    )

    def _hear(self, resource: Resource, told: InformerEvent) -> None:
        if resource == DAEMONSET and self._powers is Powers.FULL:
            self._detect_competitor(told)
        if not isinstance(told, Failing):
            self._heard[resource] = asyncio.get_running_loop().time()
        match told:
            case Listing(items=items, version=version):
                self._emit(Listed(self._clock(), resource, len(items), version))
                if self._rooms is not None:
                    self._wake(self._rooms.replace(resource, items, version))
                self._wake(self._cache.replace(resource, items, version))
                if self._cache.synced:
                    self.synced.set()
            case WatchEvent(type=type, object=body, version=version):
                if self._powers is Powers.OBSERVE and resource == POD and type is EventType.DELETED:
                    self._shadow.gone(pods.pod_of(body))
                if self._rooms is not None:
                    self._wake(self._rooms.apply(resource, type, body, version))
                self._wake(self._cache.apply(resource, type, body, version))
            case WorldVersion(version=version):
                self._wake(self._cache.answered(resource, version))
            case Failing(error=error, retry_in=retry_in):
                self._emit(WatchFailed(self._clock(), resource, error, retry_in))
        self._tell_moved()

    def _tell_moved(self) -> None:
        if self._cache.synced and (moved := self._cache.take_moved()):
            for listener in self._listeners:
                listener(moved)

    def _detect_competitor(self, told: InformerEvent) -> None:
        """Raises Refused, which ends `run`, when another DaemonSet controller shows itself."""
        rival = ""
        match told:
            case Listing(items=items):
                rival = self._rivals.listed(items)
            case WatchEvent(type=EventType.DELETED, object=body):
                self._rivals.gone(body)
            case WatchEvent(type=EventType.ADDED | EventType.MODIFIED, object=body):
                rival = self._rivals.changed(body)
            case WatchEvent() | WorldVersion() | Failing():
                pass
        if rival:
            raise conflict_probe.refusal(rival)

    def _wake(self, keys: set[Key]) -> None:
        if not keys:
            return
        due = asyncio.get_running_loop().time() + GATHERED
        for key in sorted(keys):
            self._queue.add(key, due)
        self._news.set()

    async def _take_turns(self) -> None:
        """Starts turns as keys get due and there is room for them."""
        loop = asyncio.get_running_loop()
        await self._first_lists()
        async with asyncio.TaskGroup() as turns:
            room = asyncio.Semaphore(TURNS_AT_ONCE)
            stage = executor.ExecutionContext(
                self._cluster,
                self._clock,
                self._remember,
                self._emit,
                asyncio.Semaphore(REQUESTS_AT_ONCE),
            )
            while not self._stopping:
                await room.acquire()
                self._news.clear()
                key = self._queue.take(loop.time()) if self._leading else None
                if key is not None:
                    turn = turns.create_task(self._turn(stage, key))
                    self._turns[turn] = loop.time()
                    turn.add_done_callback(self._turns.pop)
                    turn.add_done_callback(lambda _: room.release())
                    continue
                room.release()
                await self._wait_for_news(self._queue.next_due() if self._leading else None)

    async def _first_lists(self) -> None:
        while not self._cache.synced and not self._stopping:
            self._news.clear()
            await self._news.wait()

    async def _wait_for_news(self, until: float | None) -> None:
        if self._stopping:
            return
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return

    async def _turn(self, stage: executor.ExecutionContext, key: Key) -> None:
        failed = False
        try:
            failed = await self._look_and_act(stage, key)
        finally:
            self._queue.done(key, asyncio.get_running_loop().time(), failed)
            self._news.set()

    async def _look_and_act(self, stage: executor.ExecutionContext, key: Key) -> bool:
        """One turn; returns whether it failed, in whole or in part, and has to be taken again,
        later each time.
        """
        seen = self.observe(key)
        if seen is None:
            self._queue.forget(key)
            self._shadow.forget(key)
            self._refused.pop(key, None)
            self._repetitions.pop(key, None)
            return False
        match self._powers:
            case Powers.PACE:
                return False  # no agent has a rollout policy yet
            case Powers.OBSERVE:
                self._compare(seen)
                return False
            case Powers.FULL:
                decision = decide.decide(seen)
                self._emit(Decided(seen.now, key, decision, True, seen))
                self._cache.remember(seen.daemonset, decision)
                if self._rooms is not None:
                    self._rooms.remember(key, decision)
                outcome = await executor.perform(
                    stage, seen.daemonset, decision, self._refused.pop(key, ())
                )
                if outcome.refused:
                    self._refused[key] = outcome.refused
                failed = bool(outcome.errors or outcome.refused) or self._comes_to_nothing(
                    key, decision
                )
                self._come_back(key, decision.wake_after, outcome.wrote and not failed)
                return failed

    def _comes_to_nothing(self, key: Key, decision: Decision) -> bool:
        """Whether what this decision writes was written again and again of late, and so comes to
        nothing.
        """
        repetition = self._repetitions.setdefault(key, Repetition())
        return repetition.note(
            map(executor.target, decision.actions), asyncio.get_running_loop().time()
        )

    def _compare(self, seen: Observation) -> None:
        """A turn that performs nothing: it tells what would be done, and whether somebody else did
        so.
        """
        key, decision = seen.daemonset.key, decide.decide(seen)
        told = Decided(seen.now, key, decision, False, seen)
        self._emit(told)
        look = self._shadow.look(told)
        for record in look.records:
            self._emit(record)
        for wait in (decision.wake_after, look.wake_after):
            self._come_back(key, wait, wrote=False)

    def _come_back(self, key: Key, wake_after: float | None, wrote: bool) -> None:
        """A turn that did something is followed by another, which sees it done; else time alone may
        bring the next.

        An action that comes to nothing each time (a revision that can't be changed) must not be
        tried in a circle: a turn in which something was refused is followed by the queue's next
        try, and time all the same brings one where it changes the answer.
        """
        now = asyncio.get_running_loop().time()
        if wrote:
            self._queue.add(key, now)
        elif wake_after is not None:
            self._queue.add(key, now + wake_after)

    def _remember(self, resource: Resource, body: Body) -> None:
        if self._rooms is not None and resource == POD:
            self._rooms.wrote(body)
        self._cache.wrote(resource, body, self._clock())
        self._tell_moved()
