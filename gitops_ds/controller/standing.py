"""How every agent stands, kept current from what the controller's watches show: no request, and work only for what changed.

The page, the status objects, the metrics and the events read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Set
from typing import Protocol
from weakref import WeakSet

from gitops_ds.controller import fleet
from gitops_ds.controller.fleet import Agent
from gitops_ds.core import health
from gitops_ds.core.attribution import DEADLINE, Scope
from gitops_ds.core.health import Course
from gitops_ds.errors import ClusterError, Forbidden, Invalid
from gitops_ds.model.decision import CreatePod, Health, Observation
from gitops_ds.model.deployment import PassEnded, State
from gitops_ds.model.objects import DAEMONSET, Key
from gitops_ds.model.record import ActionFailed, Performed, Record

GATHERED = 0.5  # seconds: what comes close together is looked at once
SHARE = 0.1  # of a core, at most, goes into looking while everything moves
AT_A_TIME = 0.02  # seconds of looking before others have their turn


class Watched(Protocol):
    """The part of the controller that is read (`gitops_ds.controller.loop.Controller`)."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The DaemonSets of the cluster, sorted."""
        ...

    def observe(self, key: Key) -> Observation | None:
        """What is known about a DaemonSet now."""
        ...

    def listen(self, moved: Callable[[Set[Key]], None]) -> None:
        """`moved` is told whose observation changed."""
        ...


class Changes:
    """The keys that changed since the last step; an endless asynchronous iterator of sets that are not empty."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._news = asyncio.Event()

    def add(self, keys: Set[Key]) -> None:
        """These changed."""
        self._keys |= keys
        self._news.set()

    def __aiter__(self) -> AsyncIterator[frozenset[Key]]:
        """Itself."""
        return self

    async def __anext__(self) -> frozenset[Key]:
        """Waits until there is one, and takes all."""
        await self._news.wait()
        self._news.clear()
        keys, self._keys = frozenset(self._keys), set()
        return keys


class Standings:
    """All agents of one cluster as they stand now.

    `states` gives what each owner remembers, by its id; `clock` gives seconds since 1970; after `deadline` seconds without progress
    a rollout has failed. Nothing is looked at until `run` runs.
    """

    def __init__(
        self,
        controller: Watched,
        states: Callable[[], Mapping[str, State]],
        clock: Callable[[], float],
        *,
        deadline: float = DEADLINE,
    ) -> None:
        self._controller, self._states, self._clock, self._deadline = controller, states, clock, deadline
        self._courses: dict[Key, Course] = {}
        self._refused: dict[Key, str] = {}
        self._agents: dict[Key, Agent] = {}
        self._sorted: tuple[Agent, ...] | None = ()
        self._due: set[Key] = set(controller.keys)
        self._news = asyncio.Event()
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._changes: WeakSet[Changes] = WeakSet()
        controller.listen(self.wake)
        self._news.set()

    def agents(self) -> tuple[Agent, ...]:
        """Every DaemonSet of the cluster, and those that an owner applied and that are missing; sorted by key."""
        if self._sorted is None:
            self._sorted = tuple(self._agents[key] for key in sorted(self._agents))
        return self._sorted

    def agent(self, key: Key) -> Agent | None:
        """One of them."""
        return self._agents.get(key)

    def changed(self) -> Changes:
        """The keys of agents that come, go, or stand otherwise from now on: `async for keys in standings.changed()`."""
        changes = Changes()
        self._changes.add(changes)
        return changes

    def wake(self, keys: Set[Key]) -> None:
        """These are looked at again soon."""
        self._due |= keys
        self._news.set()

    def hear(self, told: Record) -> None:
        """What no watch shows: a pass changed what an owner remembers; a pod was refused, or let in."""
        match told:
            case PassEnded():
                ours = {agent.key for agent in self.agents() if fleet.owner(agent.seen) or not agent.seen.daemonset.uid}
                self.wake(ours | self._applied())
            case ActionFailed(daemonset=key, action=CreatePod(), error=error) if is_refusal(error):
                self._refused[key] = str(error)
                self.wake({key})
            case Performed(daemonset=key, action=CreatePod()):
                self._refused.pop(key, None)
            case _:
                pass

    async def run(self) -> None:
        """Keeps them current until it is cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                await self._news.wait()
                await asyncio.sleep(GATHERED)
                self._news.clear()
                keys, self._due, spent = sorted(self._due), set(), 0.0
                while keys:
                    began, changed = clock(), set[Key]()
                    while keys and clock() - began < AT_A_TIME:
                        changed |= self._look(keys.pop())
                    spent += clock() - began
                    self._tell(changed)
                    await asyncio.sleep(0)
                await asyncio.sleep(spent * (1 - SHARE) / SHARE)
        finally:
            for alarm in self._alarms.values():
                alarm.cancel()

    def _look(self, key: Key) -> Set[Key]:
        """Looks at one; whether it changed, as a set."""
        if (alarm := self._alarms.pop(key, None)) is not None:
            alarm.cancel()
        before, agent = self._agents.get(key), self._now(key)
        if agent is None:
            for known in (self._agents, self._courses, self._refused):
                known.pop(key, None)
        else:
            self._agents[key] = agent
            if agent.health.again is not None:
                wait = max(agent.health.again - self._clock(), 0.0)
                self._alarms[key] = asyncio.get_running_loop().call_later(wait, self.wake, {key})
        return set() if _same(before, agent) else {key}

    def _now(self, key: Key) -> Agent | None:
        states = self._states()
        seen = self._controller.observe(key)
        if seen is not None:
            return Agent(seen, self._judged(key, seen), states.get(fleet.owner(seen), State()))
        state = next((state for state in states.values() if key in state.inventory), None)
        return None if state is None else fleet.missing(key, state, self._clock())

    def _judged(self, key: Key, seen: Observation) -> Health:
        scope = Scope(self._deadline, self._refused.get(key, ""))
        judged = health.follow(self._courses.get(key, Course()), seen, scope)
        self._courses[key] = judged.course
        return judged.health

    def _applied(self) -> set[Key]:
        return {key for state in self._states().values() for key in state.inventory if key.kind == DAEMONSET.kind}

    def _tell(self, changed: Set[Key]) -> None:
        if changed:
            self._sorted = None
            for changes in self._changes:
                changes.add(changed)


def is_refusal(error: ClusterError) -> bool:
    """Whether the API server took the request and said no: a quota, a policy, a webhook, also one that does not answer."""
    return isinstance(error, Forbidden | Invalid) or "admission webhook" in str(error) or "failed calling webhook" in str(error)


def _same(one: Agent | None, other: Agent | None) -> bool:
    """Whether nobody would see a difference: the moment of the look doesn't count."""
    if one is None or other is None:
        return one is other
    return one.health == other.health and one.state is other.state and _marks(one) == _marks(other)


def _marks(agent: Agent) -> object:
    seen = agent.seen
    return seen.daemonset.uid, seen.daemonset.version, seen.pods, seen.revisions
