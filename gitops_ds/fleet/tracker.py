"""How every agent stands, kept current from what the controller's watches show: no request, and
work only for what changed.

The page, the status objects, the metrics and the events read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Protocol
from weakref import WeakSet

from gitops_ds.daemonset import competing_controller
from gitops_ds.errors import BadRequest, ClusterError, Forbidden, Invalid
from gitops_ds.fleet import agents as fleet_agents
from gitops_ds.fleet import health, node_coverage, rollout_tracker
from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.fault_attribution import DEADLINE, FaultScope
from gitops_ds.fleet.health import ProgressMarker
from gitops_ds.fleet.node_coverage import Lost
from gitops_ds.fleet.rollout_tracker import TrackedRollout
from gitops_ds.model import names
from gitops_ds.model.decision import CreatePod, Health, Observation
from gitops_ds.model.deployment import DeployerState
from gitops_ds.model.events.agents import CoverageLost, HealthChanged, NodeLoss
from gitops_ds.model.events.base import (
    ActionFailed,
    Decided,
    Emit,
    Event,
    Performed,
)
from gitops_ds.model.events.deployer import Reconciled, SourceChanged
from gitops_ds.model.objects import DAEMONSET, CommitId, Key
from gitops_ds.model.source_status import SourceStatus

GATHERED = 0.5  # seconds: what comes close together is looked at once
# As controller/caches.OLDEST_PICTURE, whose module a reader of tracker does not load.
OLDEST_PICTURE = 660.0  # seconds
SHARE = 0.05  # of a core, at most, goes into looking while everything moves
NOTHING = DeployerState()
AT_A_TIME = 0.02  # seconds of looking before others have their turn


class WatchedController(Protocol):
    """The part of the controller that is read (`gitops_ds.controller.controller.Controller`)."""

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
    """The keys that changed since the last step; an endless asynchronous iterator of sets that are
    not empty.
    """

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


@dataclass(slots=True)
class _AgentMemory:
    """What is known of an agent that no object says."""

    course: ProgressMarker = field(default_factory=ProgressMarker)
    lost: Lost = field(default_factory=Lost)
    rollout: TrackedRollout | None = None
    refused: str = ""


class StatusTracker:
    """All agents of one cluster as they stand now.

    `states` gives what each owner remembers, by its id; `clock` gives seconds since 1970; after
    `deadline` seconds without progress a rollout has failed. `sources` gives the status of each
    owner's repository. `emit` is told what becomes of agents. Nothing is looked at until `run`
    runs.
    """

    def __init__(
        self,
        controller: WatchedController,
        states: Callable[[], Mapping[str, DeployerState]],
        clock: Callable[[], float],
        emit: Emit = lambda _: None,
        *,
        deadline: float = DEADLINE,
        sources: Callable[[], Mapping[str, SourceStatus]] = dict,
    ) -> None:
        self._sources = sources
        self._controller, self._states, self._clock, self._emit, self._deadline = (
            controller,
            states,
            clock,
            emit,
            deadline,
        )
        self._since = clock() - 1.0  # the API server's times are whole seconds
        self._memories: dict[Key, _AgentMemory] = {}
        self._agents: dict[Key, Agent] = {}
        self._sorted: tuple[Agent, ...] | None = ()
        self._unplaced = frozenset[Key]()
        self._stale = ""
        self._due: set[Key] = set(controller.keys)
        self._news = asyncio.Event()
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._changes: WeakSet[Changes] = WeakSet()
        controller.listen(self.wake)
        self._news.set()

    def agents(self) -> tuple[Agent, ...]:
        """Every DaemonSet of the cluster, and those that an owner applied and that are missing;
        sorted by key.
        """
        if self._sorted is None:
            self._sorted = tuple(self._shown(self._agents[key]) for key in sorted(self._agents))
        return self._sorted

    def agent(self, key: Key) -> Agent | None:
        """One of them."""
        found = self._agents.get(key)
        return self._shown(found) if found is not None else None

    def _shown(self, agent: Agent) -> Agent:
        return replace(agent, stale=self._stale) if self._stale else agent

    def age(self, silent: Mapping[str, float]) -> None:
        """For how many seconds each watch was silent, by the plural of its kind: past the bound no
        agent is in sync.
        """
        oldest = max(silent, key=lambda kind: silent[kind], default="")
        is_old = bool(oldest) and silent[oldest] > OLDEST_PICTURE
        stale = (
            f"the watch of {oldest} shows nothing for more than {OLDEST_PICTURE / 60:.0f} minutes"
            if is_old
            else ""
        )
        if stale != self._stale:
            self._stale = stale
            self._tell(set(self._agents))

    def changed(self) -> Changes:
        """The keys of agents that come, go, or stand otherwise from now on: `async for keys in
        tracker.changed()`.
        """
        changes = Changes()
        self._changes.add(changes)
        return changes

    def wake(self, keys: Set[Key]) -> None:
        """These are looked at again soon."""
        self._due |= keys
        self._news.set()

    def handle(self, told: Event) -> None:
        """What no watch shows: a pass changed what an owner remembers; a pod was refused, or let
        in.
        """
        match told:
            case Reconciled() | SourceChanged():
                ours = {
                    agent.key
                    for agent in self.agents()
                    if fleet_agents.owner(agent.seen) or not agent.seen.daemonset.uid
                }
                self.wake(ours | self._applied())
            case ActionFailed(daemonset=key, action=CreatePod(), error=error) if is_refusal(error):
                self._memory(key).refused = str(error)
                self.wake({key})
            case Decided(daemonset=key, decision=decision) if (
                decision.unplaced or key in self._unplaced
            ):
                self._unplaced = (
                    self._unplaced | {key} if decision.unplaced else self._unplaced - {key}
                )
                self.refuse(key, next(iter(decision.unplaced.values()), ""))
            case Performed(daemonset=key, action=CreatePod()):
                self._memory(key).refused = ""
            case _:
                pass

    def refuse(self, key: Key, why: str) -> None:
        """Why the pods of one are refused just now, as another controller tells; empty: they are
        not.
        """
        memory = self._memories.get(key)
        if memory is not None and memory.refused != why:
            memory.refused = why
            self.wake({key})

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

    def losses(self, key: Key) -> tuple[NodeLoss, ...]:
        """The nodes that lost the agent though no commit says so, and did not get it back."""
        memory = self._memories.get(key)
        return tuple(memory.lost.losses.values()) if memory else ()

    def _look(self, key: Key) -> Set[Key]:
        """Looks at one; whether it changed, as a set."""
        if (alarm := self._alarms.pop(key, None)) is not None:
            alarm.cancel()
        before, seen, states = self._agents.get(key), self._controller.observe(key), self._states()
        # our own, and no agent
        if seen is not None and competing_controller.is_probe(seen.daemonset.raw):
            return set()
        agent: Agent | None = None
        if seen is not None:
            owner = fleet_agents.owner(seen)
            agent = Agent(
                seen,
                self._judged(key, before, seen),
                states.get(owner, NOTHING),
                self._sources().get(owner),
            )
        elif (
            by := next((id for id, state in states.items() if key in state.inventory), None)
        ) is not None:
            agent = fleet_agents.missing(key, states[by], self._clock(), self._sources().get(by))
        if agent is None:
            self._agents.pop(key, None)
        else:
            self._agents[key] = agent
            self._tell_health(before, agent)
        if seen is None:
            self._memories.pop(key, None)
        return set() if _same(before, agent) else {key}

    def _judged(self, key: Key, before: Agent | None, seen: Observation) -> Health:
        memory = self._memory(key)
        judged = health.follow(memory.course, seen, FaultScope(self._deadline, memory.refused))
        memory.course = judged.course
        memory.rollout, told = rollout_tracker.follow(
            memory.rollout, seen, judged.health, self._since
        )
        for record in told:
            self._emit(record)
        again = [judged.health.again]
        if fleet_agents.owner(seen) and before is not None:
            again.append(self._watch_coverage(memory, before, seen))
        if times := [time for time in again if time is not None]:
            wait = max(min(times) - seen.now, 0.0)
            self._alarms[key] = asyncio.get_running_loop().call_later(wait, self.wake, {key})
        return judged.health

    def _watch_coverage(
        self, memory: _AgentMemory, before: Agent, seen: Observation
    ) -> float | None:
        """Tells losses that are complete; returns when to look for others to be so."""
        memory.lost = node_coverage.update(memory.lost, before.seen, seen, memory.refused)
        if (due := memory.lost.due) is None or due > seen.now:
            return due
        untold = memory.lost.untold
        memory.lost = memory.lost.told_but(self._taken_over(seen))
        if losses := tuple(loss for loss in untold if loss.node in memory.lost.losses):
            of = len(node_coverage.covered(seen) | memory.lost.losses.keys())
            self._emit(CoverageLost(seen.now, seen.daemonset.key, seen.daemonset.uid, losses, of))
        return None

    def _taken_over(self, seen: Observation) -> Set[str]:
        """The nodes that other variants of the agent belong on."""
        others = (agent.seen for agent in self.agents() if agent.key != seen.daemonset.key)
        family = node_coverage.family(seen.daemonset)
        return {
            node
            for other in others
            if node_coverage.family(other.daemonset) == family
            for node in node_coverage.covered(other)
        }

    def _tell_health(self, before: Agent | None, agent: Agent) -> None:
        was, daemonset = before.health.state if before else None, agent.seen.daemonset
        if was is not agent.health.state:
            commit = CommitId(daemonset.annotations.get(names.COMMIT, ""))
            self._emit(
                HealthChanged(agent.seen.now, agent.key, daemonset.uid, was, agent.health, commit)
            )

    def _memory(self, key: Key) -> _AgentMemory:
        return self._memories.setdefault(key, _AgentMemory())

    def _applied(self) -> set[Key]:
        return {
            key
            for state in self._states().values()
            for key in state.inventory
            if key.kind == DAEMONSET.kind
        }

    def _tell(self, changed: Set[Key]) -> None:
        if changed:
            self._sorted = None
            for changes in self._changes:
                changes.add(changed)


def is_refusal(error: ClusterError) -> bool:
    """Whether the API server took the request and said no: a quota, a policy, a webhook, also one
    that does not answer.
    """
    return (
        isinstance(error, BadRequest | Forbidden | Invalid)
        or "admission webhook" in str(error)
        or "failed calling webhook" in str(error)
    )


def _same(one: Agent | None, other: Agent | None) -> bool:
    """Whether nobody would see a difference: the moment of the look doesn't count."""
    if one is None or other is None:
        return one is other
    return one.health == other.health and _marks(one) == _marks(other)


def _marks(agent: Agent) -> object:
    seen, known = agent.seen, agent.state
    of_agent = (
        known.revisions.get(agent.key),
        known.drift.get(agent.key),
        known.generations.get(agent.key),
    )
    remembered = known.last_good, known.last_attempted, *of_agent
    source = (
        (agent.source.condition, agent.source.message, agent.source.active)
        if agent.source
        else None
    )
    return seen.daemonset.uid, seen.daemonset.version, seen.pods, seen.revisions, remembered, source
