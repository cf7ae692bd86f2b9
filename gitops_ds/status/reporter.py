"""The status of the agents of a cluster as a runnable of the service: every replica tracks it, the
leader emits its events and writes the status ConfigMaps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gitops_ds.controller import pod_warnings
from gitops_ds.controller.observer import Observer
from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, ClusterReader
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Emit, Event
from gitops_ds.core.health import AgentStatus, HealthState, NodeLoss
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.objects import Key
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.rollouts.views import staged_rollouts
from gitops_ds.status import agent_healths, agents
from gitops_ds.status.agents import Agent
from gitops_ds.status.status_writer import StatusWriter
from gitops_ds.status.tracker import StatusTracker

AGED = 30.0  # seconds between two checks of the age of the watches
# Seconds between two reads of refused pods; one that waits for a shorter time is being created.
REFUSALS_EVERY = 20.0


class StatusTarget(msgspec.Struct, frozen=True):
    """The cluster and namespace of the ConfigMaps, and the `deadline` of a rollout in seconds.

    `beside`: another controller creates the pods.
    """

    cluster: Cluster
    namespace: str
    deadline: float
    beside: bool = False


class ReporterInput(msgspec.Struct, frozen=True):
    """The `states` and `sources` of each owner by its ID, and the seconds since each watch last
    received anything, by plural. Events and status ConfigMaps are written under `leadership`.
    """

    states: Callable[[], Mapping[str, DeployerState]] = dict
    sources: Callable[[], Mapping[str, SourceStatus]] = dict
    ages: Callable[[], Mapping[str, float]] = dict
    leadership: Leadership = msgspec.field(default_factory=Leadership)


class StatusReporter:
    """The runnable. `emit` receives the events of agents while this replica leads."""

    unready = ""
    seconds_without_progress = 0.0

    def __init__(
        self, home: StatusTarget, observer: Observer, inputs: ReporterInput, emit: Emit
    ) -> None:
        self._ages = inputs.ages
        self._emit, self._leadership = emit, inputs.leadership
        self._turn = asyncio.Event()
        inputs.leadership.listen(lambda leads: self._turn.set())
        self._stopping = asyncio.Event()
        self.tracker = StatusTracker(
            observer,
            inputs.states,
            time.time,
            self._publish,
            deadline=home.deadline,
            sources=inputs.sources,
        )
        self._failures = (
            PodCreateFailureWatcher(home.cluster, self.tracker, time.time) if home.beside else None
        )
        self._statuses = StatusWriter(
            home.cluster, home.namespace, self.tracker, inputs.states, time.time
        )

    def _publish(self, event: Event) -> None:
        if self._leadership.leads:
            self._emit(event)

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping.set()

    async def run(self) -> None:
        """Runs until `stop`."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.tracker.run()),
                group.create_task(self._write()),
                group.create_task(self._age()),
            ]
            if self._failures is not None:
                tasks.append(group.create_task(self._failures.run()))
            await self._stopping.wait()
            for task in tasks:
                task.cancel()

    async def _age(self) -> None:
        while True:
            await asyncio.sleep(AGED)
            self.tracker.age(self._ages())

    async def _write(self) -> None:
        while True:
            while not self._leadership.leads:
                self._turn.clear()
                await self._turn.wait()
            await self._statuses.run(lambda: self._leadership.leads)

    def statuses(self) -> Iterable[AgentStatus]:
        """The values of the metrics for each agent with an owner."""
        return (
            status_of(agent, self.tracker.losses(agent.key))
            for agent in self.tracker.agents()
            if agent.owner
        )


def status_of(agent: Agent, losses: tuple[NodeLoss, ...] = ()) -> AgentStatus:
    """The values of the metrics for an agent; `losses` are the nodes that lost it."""
    daemonset = agent.seen.daemonset
    return AgentStatus(
        namespace=agent.key.namespace,
        name=agent.key.name,
        ready=agent.health.state is HealthState.HEALTHY,
        health=agent.health.state,
        sync=agents.sync_of(agent)[0],
        suspended=daemonset.suspended,
        commit=agents.commit_of(agent),
        node_counts=agent.health.node_counts,
        losses=losses,
        rollout=staged_rollouts.counts(agent.rollout) if agent.rollout else None,
        hold=agent.hold.kind if agent.hold else "",
        requests=agents.requests_of(agent),
    )


class PodCreateFailureWatcher:
    """Passes to `tracker` why pods that another controller creates are refused, by its events,
    which are read only while nodes wait for a pod. `clock` returns seconds since 1970.
    """

    def __init__(
        self, cluster: ClusterReader, tracker: StatusTracker, clock: Callable[[], float]
    ) -> None:
        self._cluster, self._tracker, self._clock = cluster, tracker, clock

    async def run(self) -> None:
        """Runs until it is cancelled; returns without permission to list events."""
        waited, may = frozenset[Key](), False
        while True:
            await asyncio.sleep(REFUSALS_EVERY)
            waiting = {
                agent.key: agent
                for agent in self._tracker.agents()
                if agent_healths.waits_for_pods(agent.health)
            }
            # Only agents that also waited at the previous read: a pod in creation is not a failure.
            if still := [agent for key, agent in waiting.items() if key in waited]:
                try:
                    may = may or await pod_warnings.may_list(self._cluster)
                    if not may:
                        return
                    reasons = await agent_healths.refused_pods(self._cluster, self._clock())
                except errors.Forbidden:
                    return
                except errors.ClusterError:
                    continue
                for agent in still:
                    self._tracker.refuse(agent.key, reasons.get(agent.seen.daemonset.uid, ""))
            for key in waited - waiting.keys():
                self._tracker.refuse(key, "")
            waited = frozenset(waiting)
