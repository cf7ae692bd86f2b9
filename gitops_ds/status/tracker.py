"""The status of every agent, updated from the watches of an observer: without requests, and with
work only for changed agents.

The page, the status ConfigMaps, the metrics and the events are derived from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field
from weakref import WeakSet

from gitops_ds.controller.observer import Observer
from gitops_ds.core.decision import CreatePod, Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.errors import BadRequest, ClusterError, Forbidden, Invalid
from gitops_ds.core.events.agents import CoverageLost, HealthChanged
from gitops_ds.core.events.base import ActionFailed, Decided, Emit, Event, Performed
from gitops_ds.core.events.deployer import Reconciled, SourceChanged
from gitops_ds.core.health import Health, NodeLoss
from gitops_ds.core.objects import DAEMONSET, CommitId, Key
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.daemonset import competing_controller
from gitops_ds.rollouts.views import rollout_tracker, staged_rollouts
from gitops_ds.rollouts.views.rollout_tracker import RolloutView, TrackedRollout
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status import health, lost_nodes
from gitops_ds.status.agents import Agent
from gitops_ds.status.fault_attribution import DEADLINE, FaultScope
from gitops_ds.status.health import ProgressMarker
from gitops_ds.status.lost_nodes import Lost

GATHERED = 0.5  # seconds for which changes are collected
# As deployer.watch_cache.OLDEST_PICTURE: a command that reads the status does not load that module.
OLDEST_PICTURE = 660.0  # seconds
SHARE = 0.05  # the maximum share of a core while all agents change
NOTHING = DeployerState()
AT_A_TIME = 0.02  # seconds of work until other tasks may run


class Changes:
    """The keys that changed since the last step; an endless asynchronous iterator of non-empty
    sets.
    """

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._news = asyncio.Event()

    def add(self, keys: Set[Key]) -> None:
        """Adds changed keys."""
        self._keys |= keys
        self._news.set()

    def __aiter__(self) -> AsyncIterator[frozenset[Key]]:
        """Itself."""
        return self

    async def __anext__(self) -> frozenset[Key]:
        """Waits for a change and returns all keys since the last step."""
        await self._news.wait()
        self._news.clear()
        keys, self._keys = frozenset(self._keys), set()
        return keys


@dataclass(slots=True)
class _AgentMemory:
    """The state of an agent that is not in any object of the cluster."""

    course: ProgressMarker = field(default_factory=ProgressMarker)
    lost: Lost = field(default_factory=Lost)
    rollout: TrackedRollout | None = None
    refused: str = ""


class StatusTracker:
    """The present status of all agents of a cluster.

    `states` returns the state of each owner by its ID, `sources` the status of its repository, and
    `clock` seconds since 1970. After `deadline` seconds without progress a rollout has failed.
    `emit` receives the events of agents. The status is updated while `run` runs.
    """

    def __init__(
        self,
        observer: Observer,
        states: Callable[[], Mapping[str, DeployerState]],
        clock: Callable[[], float],
        emit: Emit = lambda _: None,
        *,
        deadline: float = DEADLINE,
        sources: Callable[[], Mapping[str, SourceStatus]] = dict,
    ) -> None:
        self._sources = sources
        self.includes: Callable[[Key], bool] = lambda _: True
        self.observer, self._states, self._clock, self._emit, self._deadline = (
            observer,
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
        self._due: set[Key] = set(observer.keys)
        self._news = asyncio.Event()
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self._changes: WeakSet[Changes] = WeakSet()
        observer.listen(self.wake)
        self._news.set()

    def track_only(self, includes: Callable[[Key], bool]) -> None:
        """Updates only these agents. Before `run`."""
        self.includes = includes

    def agents(self) -> tuple[Agent, ...]:
        """The DaemonSets of the cluster and the missing ones of the inventories, sorted by key."""
        if self._sorted is None:
            self._sorted = tuple(self._shown(self._agents[key]) for key in sorted(self._agents))
        return self._sorted

    def agent(self, key: Key) -> Agent | None:
        """The agent with this key, or None."""
        agent = self._agents.get(key)
        return self._shown(agent) if agent is not None else None

    def _shown(self, agent: Agent) -> Agent:
        return replace(agent, stale=self._stale) if self._stale else agent

    def age(self, silent: Mapping[str, float]) -> None:
        """Sets the seconds since each watch last received anything, by plural. Past the limit no
        agent is in sync.
        """
        oldest = max(silent, key=lambda kind: silent[kind], default="")
        is_old = bool(oldest) and silent[oldest] > OLDEST_PICTURE
        stale = (
            f"the watch of {oldest} has been silent for more than {OLDEST_PICTURE / 60:.0f} minutes"
            if is_old
            else ""
        )
        if stale != self._stale:
            self._stale = stale
            self._publish(set(self._agents))

    def changed(self) -> Changes:
        """The keys of agents that are added, removed or changed from now on: `async for keys in
        tracker.changed()`.
        """
        changes = Changes()
        self._changes.add(changes)
        return changes

    def wake(self, keys: Set[Key]) -> None:
        """Schedules these agents for an update."""
        self._due |= keys
        self._news.set()

    def handle(self, event: Event) -> None:
        """Handles changes that no watch reports: a reconciliation changed the state of an owner; a
        pod was refused or created.
        """
        match event:
            case Reconciled() | SourceChanged():
                ours = {
                    agent.key
                    for agent in self.agents()
                    if agent.owner or not agent.seen.daemonset.uid
                }
                self._restate(ours | self._applied())
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

    def _restate(self, keys: Set[Key]) -> None:
        """Gives agents the state of their owner and the status of its repository. Their health does
        not depend on them; a missing agent is updated as a whole.
        """
        states, sources = self._states(), self._sources()
        changed, missing = set[Key](), set[Key]()
        for key in keys - self._due:
            before = self._agents.get(key)
            if before is None or not before.seen.daemonset.uid:
                missing.add(key)
                continue
            owner = fleet_agents.owner(before.seen)
            after = replace(before, state=states.get(owner, NOTHING), source=sources.get(owner))
            self._agents[key] = after
            if not _same(before, after):
                changed.add(key)
        self._publish(changed)
        if missing:
            self.wake(missing)

    def refuse(self, key: Key, why: str) -> None:
        """Sets the reason why the pods of an agent are refused; empty if they are not."""
        memory = self._memories.get(key)
        if memory is not None and memory.refused != why:
            memory.refused = why
            self.wake({key})

    async def run(self) -> None:
        """Updates the status until it is cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                await self._news.wait()
                await asyncio.sleep(GATHERED)
                self._news.clear()
                keys, self._due, spent = sorted(filter(self.includes, self._due)), set(), 0.0
                while keys:
                    began, changed = clock(), set[Key]()
                    while keys and clock() - began < AT_A_TIME:
                        changed |= self._update(keys.pop())
                    spent += clock() - began
                    self._publish(changed)
                    await asyncio.sleep(0)
                await asyncio.sleep(spent * (1 - SHARE) / SHARE)
        finally:
            for alarm in self._alarms.values():
                alarm.cancel()

    def losses(self, key: Key) -> tuple[NodeLoss, ...]:
        """The nodes that lost the agent without a commit and do not have it again."""
        memory = self._memories.get(key)
        return tuple(memory.lost.losses.values()) if memory else ()

    def _update(self, key: Key) -> Set[Key]:
        """Updates an agent; returns its key in a set if it changed, else an empty set."""
        if (alarm := self._alarms.pop(key, None)) is not None:
            alarm.cancel()
        before, seen, states = self._agents.get(key), self.observer.observe(key), self._states()
        # the probe for another controller is not an agent
        if seen is not None and competing_controller.is_probe(seen.daemonset.raw):
            return set()
        agent: Agent | None = None
        if seen is not None:
            owner = fleet_agents.owner(seen)
            state = states.get(owner, NOTHING)
            rollout = staged_rollouts.read(seen, self.observer.rollouts.inputs)
            commit = fleet_agents.rollout_commit(seen, state, rollout)
            judged = self._judged(before, seen, rollout, commit)
            agent = Agent(seen, judged, state, self._sources().get(owner), rollout=rollout)
        elif (
            by := next((id for id, state in states.items() if key in state.inventory), None)
        ) is not None:
            agent = fleet_agents.missing(key, states[by], self._clock(), self._sources().get(by))
        if agent is None:
            self._agents.pop(key, None)
        else:
            self._agents[key] = agent
            self._publish_health(before, agent)
        if seen is None:
            self._memories.pop(key, None)
        return set() if _same(before, agent) else {key}

    def _judged(
        self,
        before: Agent | None,
        seen: Observation,
        rollout: StagedRollout | None,
        commit: CommitId,
    ) -> Health:
        key = seen.daemonset.key
        memory = self._memory(key)
        warnings = self.observer.pod_warnings.of(seen)
        scope = FaultScope(self._deadline, memory.refused, rollout, warnings)
        judged = health.follow(memory.course, seen, scope)
        memory.course = judged.course
        memory.rollout, events = rollout_tracker.follow(
            memory.rollout, RolloutView(seen, judged.health, commit, rollout), self._since
        )
        for event in events:
            self._emit(event)
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
        """Emits due losses; returns the time at which others are due."""
        memory.lost = lost_nodes.update(memory.lost, before.seen, seen, memory.refused)
        if (due := memory.lost.due) is None or due > seen.now:
            return due
        unreported = memory.lost.unreported
        memory.lost = memory.lost.reported_except(self._taken_over(seen))
        if losses := tuple(loss for loss in unreported if loss.node in memory.lost.losses):
            of = len(lost_nodes.covered(seen) | memory.lost.losses.keys())
            self._emit(CoverageLost(seen.now, seen.daemonset.key, seen.daemonset.uid, losses, of))
        return None

    def _taken_over(self, seen: Observation) -> Set[str]:
        """The nodes that need other variants of the agent."""
        others = (agent.seen for agent in self.agents() if agent.key != seen.daemonset.key)
        family = lost_nodes.family(seen.daemonset)
        return {
            node
            for other in others
            if lost_nodes.family(other.daemonset) == family
            for node in lost_nodes.covered(other)
        }

    def _publish_health(self, before: Agent | None, agent: Agent) -> None:
        was, daemonset = before.health.state if before else None, agent.seen.daemonset
        if was is not agent.health.state:
            commit = fleet_agents.rollout_commit(agent.seen, agent.state, agent.rollout)
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

    def _publish(self, changed: Set[Key]) -> None:
        if changed:
            self._sorted = None
            for changes in self._changes:
                changes.add(changed)


def is_refusal(error: ClusterError) -> bool:
    """Whether the API server refused the request by a quota, a policy or a webhook, also by a
    webhook that is unavailable.
    """
    return (
        isinstance(error, BadRequest | Forbidden | Invalid)
        or "admission webhook" in str(error)
        or "failed calling webhook" in str(error)
    )


def _same(one: Agent | None, other: Agent | None) -> bool:
    """Whether both are equal apart from the time of the observation."""
    if one is None or other is None:
        return one is other
    if (one.rollout and one.rollout.stages) != (other.rollout and other.rollout.stages):
        return False
    return one.health == other.health and _marks(one) == _marks(other)


def _marks(agent: Agent) -> object:
    seen, state = agent.seen, agent.state
    of_agent = (
        state.commits.get(agent.key),
        state.causes.get(agent.key),
        state.drift.get(agent.key),
        state.generations.get(agent.key),
    )
    remembered = state.last_good, state.last_attempted, *of_agent
    source = (
        (agent.source.condition, agent.source.message, agent.source.active)
        if agent.source
        else None
    )
    return seen.daemonset.uid, seen.daemonset.version, seen.pods, seen.revisions, remembered, source
