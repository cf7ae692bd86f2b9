"""The shell around the decisions about startup taints: looks at the nodes that changed, and patches
them.

No state must survive a restart: waits follow from nodes, pods and DaemonSets. Only the time since
which an agent is not ready, for `continuous`, begins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, PatchType, Selection
from gitops_ds.core.daemonset import DaemonSet, PodCause
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.startup_taints import (
    NodeWaitsForAgents,
    StartupTaintAdded,
    StartupTaintFailed,
    StartupTaintsRemoved,
)
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.objects import NODE, Key
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.required_in_git import RequiredInGit
from gitops_ds.core.startup_taints import Enforce, NodeWait, StartupTaintPolicy, TaintChange
from gitops_ds.core.values import replace
from gitops_ds.daemonset.cache import Cache
from gitops_ds.daemonset.indexes import PodsByNode
from gitops_ds.kube.apimachinery import nodes
from gitops_ds.startup_taints import node_waits, required_agents, taint_changes
from gitops_ds.startup_taints.node_waits import NodeState, Surroundings
from gitops_ds.startup_taints.required_agents import RequiredAgent
from gitops_ds.startup_taints.taint_changes import TaintHistory

GATHERED = 0.02  # seconds: events within this time are covered by the same look
REQUESTS_AT_ONCE = 16
SHOWN_WITHIN = 30.0  # seconds until the watch must have shown a patch
REPORTED_AT = 3  # failures of one node in a row; the first ones may be races
REPORTED_EVERY = 300.0  # seconds between two reports of one kind of error
APPLIED_EVERY = 1.0  # seconds between two looks while no commit is applied
_BACKOFF = Backoff(first=1.0, longest=60.0)


class StartupInputs(msgspec.Struct, frozen=True):
    """What the shell needs beside the cache. `warnings` returns the newest warning events of the
    pods of a DaemonSet by their UID; `clock` returns seconds since 1970. Without `writes` waits are
    only reported.
    """

    clock: Callable[[], float]
    emit: Emit
    warnings: Callable[[Key], Mapping[str, PodCause]] = lambda _: {}
    writes: bool = True


class GitInputs(msgspec.Struct, frozen=True):
    """What the deployers know. `applied`: an apply has ended once, so that no required agent is
    unknown; `required` are the agents that Git requires, equal objects until one changes. `follow`
    keeps them current until it is cancelled, and calls its argument after a change.
    """

    applied: Callable[[], bool]
    required: Callable[[], Sequence[RequiredInGit]]
    follow: Callable[[Callable[[], None]], Coroutine[Any, Any, None]] | None = None


_NONE = GitInputs(lambda: False, tuple)


class _ReadAgent(msgspec.Struct, frozen=True):
    """A required agent, and the objects that it was read from."""

    required: RequiredInGit
    daemonset: DaemonSet | None
    revisions: tuple[Revision, ...]
    agent: RequiredAgent

    def is_of(
        self,
        required: RequiredInGit,
        daemonset: DaemonSet | None,
        revisions: Sequence[Revision],
        since: float,
    ) -> bool:
        """Whether it was read from these objects."""
        return (
            self.required is required
            and self.daemonset is daemonset
            and self.agent.since == since
            and len(self.revisions) == len(revisions)
            and all(a is b for a, b in zip(self.revisions, revisions, strict=True))
        )


class _HeldPatch(msgspec.Struct, frozen=True):
    """A node that is not patched again before `until` while the cache shows the same taints: the
    patch is in progress, or failed that many times, for that cause.
    """

    change: TaintChange
    until: float
    failures: int = 0
    cause: str = ""


class _Denial(msgspec.Struct, frozen=True):
    """Patches are denied, that many times in a row, for that cause: no node is patched before
    `until`, and then one, the `probe`. A missing permission concerns every node, an admission
    webhook may concern this one only: so the next probe is another one.
    """

    failures: int = 0
    until: float = 0.0
    cause: str = ""
    probe: str = ""


class StartupTaints:
    """The startup taints of the nodes of one cluster; nothing is done before `enable`."""

    def __init__(self, cluster: Cluster, cache: Cache, inputs: StartupInputs) -> None:
        self._cluster, self._cache, self._in = cluster, cache, inputs
        self._policy, self._git = StartupTaintPolicy(), _NONE
        self._by_node = PodsByNode()
        self._states: dict[str, NodeState] = {}
        self._waits: dict[str, NodeWait] = {}
        self._alarms: dict[str, float] = {}  # when a state changes without an event
        self._agents: tuple[RequiredAgent, ...] = ()
        self._read: dict[Key, _ReadAgent] = {}
        self._unready: dict[str, Mapping[Key, float]] = {}
        self._held: dict[str, _HeldPatch] = {}
        self._denial = _Denial()
        self._history = TaintHistory()
        self._reported: dict[str, tuple[str, frozenset[Key]]] = {}
        self._failed_at: dict[type[errors.ClusterError], float] = {}
        self._wakeup = asyncio.Event()
        self._leadership = Leadership()
        self._requests = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    def enable(self, policy: StartupTaintPolicy, git: GitInputs) -> None:
        """Keeps work from nodes whose required agents are not ready. Before the first list."""
        self._policy, self._git = policy, git
        self._cache.by_node = self._by_node

    @property
    def is_enabled(self) -> bool:
        """Whether nodes are followed."""
        return self._cache.by_node is not None

    @property
    def waits(self) -> Mapping[str, NodeWait]:
        """The nodes with a startup taint that wait, by name."""
        return self._waits

    def counts(self) -> Mapping[str, int]:
        """How many nodes wait, by state: late after the time at which a wait is reported; empty
        unless it is enabled.
        """
        if not self.is_enabled:
            return {}
        limit = self._in.clock() - self._policy.report_after
        late = sum(wait.since <= limit for wait in self._waits.values())
        return {"starting": len(self._waits) - late, "late": late}

    def wake(self) -> None:
        """Looks at the nodes again, soon."""
        self._wakeup.set()

    def follow(self, leadership: Leadership) -> None:
        """Patches nodes only while this replica leads. Before `run`."""
        self._leadership = leadership
        leadership.listen(self._lead)

    def _lead(self, leads: bool) -> None:
        """Starts patches; or cancels those in progress."""
        if leads:
            self._by_node.touch(self._cache.nodes)
            self.wake()
            return
        self._held.clear()
        for task in self._running:
            task.cancel()

    async def run(self) -> None:
        """Runs until it is cancelled; returns unless it is enabled."""
        if not self.is_enabled:
            return
        async with asyncio.TaskGroup() as group:
            if self._git.follow is not None:
                group.create_task(self._git.follow(self.wake))
            while True:
                await self._until_wakeup()
                await asyncio.sleep(GATHERED)
                self._wakeup.clear()
                if not self._cache.synced:
                    continue
                for change in self.due_changes():
                    task = group.create_task(self._patch(change))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)

    async def _until_wakeup(self) -> None:
        """Waits for an event, or for the time at which a state changes without one."""
        due = self._next_due()
        if due is None:
            await self._wakeup.wait()
            return
        loop = asyncio.get_running_loop()
        delay = max(due - self._in.clock(), 0.0)
        alarm = loop.call_later(delay, self._wakeup.set)
        await self._wakeup.wait()
        alarm.cancel()

    def _next_due(self) -> float | None:
        now = self._in.clock()
        times = [*self._alarms.values(), *(held.until for held in self._held.values())]
        times += (
            since + self._policy.not_ready_for
            for agents in self._unready.values()
            for since in agents.values()
        )
        if not self._git.applied() and any(state.taints for state in self._states.values()):
            times.append(now + APPLIED_EVERY)
        return min((time for time in times if time > now), default=None)

    def due_changes(self) -> Sequence[TaintChange]:
        """The changes that are due now."""
        now = self._in.clock()
        touched = self._by_node.take_touched() | self._due(now)
        if self._read_agents():
            touched |= self._cache.nodes.keys() | self._states.keys()
        warnings: dict[str, PodCause] = {}
        for agent in self._agents:
            warnings.update(self._in.warnings(agent.key))
        around = Surroundings(self._policy, self._agents, now, warnings)
        for name in touched:
            self._update(name, around)
        self._report(now)
        if not (self._leadership.leads and self._in.writes and self._git.applied()):
            return ()
        due = sorted(self._changes(touched, now), key=lambda one: one.node <= self._denial.probe)
        changes = [change for change in due if self._take(change, now)]
        self._held = {name: one for name, one in self._held.items() if one.until > now}
        return changes

    def _due(self, now: float) -> set[str]:
        """The nodes whose state changes by time alone, and those that keep their taints although
        they wait for no agent.
        """
        names = {name for name, at in self._alarms.items() if at <= now}
        names |= {name for name, one in self._held.items() if one.until <= now}
        tainted = (name for name, one in self._states.items() if one.taints)
        return names | {
            name for name in tainted if name not in self._waits or self._waits[name].cause
        }

    def _read_agents(self) -> bool:
        """Reads the required agents; returns whether they differ from the last ones."""
        read = {required.key: self._read_agent(required) for required in self._git.required()}
        self._read = read
        agents = tuple(read[key].agent for key in sorted(read))
        differ, self._agents = agents != self._agents, agents
        return differ

    def _read_agent(self, required: RequiredInGit) -> _ReadAgent:
        """A required agent. The time of a missing one begins after the first apply, which may wait
        for other agents.
        """
        known = self._read.get(required.key)
        daemonset, revisions = self._cache.find(required.key)
        since = 0.0
        if daemonset is None or daemonset.deleting:
            before = known.agent.since if known is not None and self._git.applied() else 0.0
            since = before or self._in.clock()
        if known is not None and known.is_of(required, daemonset, revisions, since):
            return known
        agent = required_agents.agent_of(required, daemonset, revisions, since)
        return _ReadAgent(required, daemonset, tuple(revisions), agent)

    def _update(self, name: str, around: Surroundings) -> None:
        """Updates the state of a node; under bootstrap only nodes with a startup taint have one."""
        node, held = self._cache.nodes.get(name), self._held.get(name)
        if held is not None and (node is None or not _is_of(held.change, node)):
            del self._held[name]
        is_followed = node is not None and (
            self._policy.enforce is Enforce.CONTINUOUS or any(map(self._policy.covers, node.taints))
        )
        self._waits.pop(name, None)
        self._alarms.pop(name, None)
        if node is None:
            self._history.forget(name)
        else:
            self._history.saw(node, any(map(self._policy.covers, node.taints)), around.now)
        if node is None or not is_followed:
            for memory in (self._states, self._unready, self._reported):
                memory.pop(name, None)
            return
        pods = self._by_node.on(name)
        tainted_at = self._history.tainted_at(name)
        self._states[name] = state = node_waits.state_of(node, pods, around, tainted_at)
        times = [state.wake_at] if state.wake_at is not None else []
        if (wait := state.wait or self._kept(state)) is not None:
            self._waits[name] = wait
            times.append(wait.since + self._policy.report_after)
        else:
            self._reported.pop(name, None)
        if times := [at for at in times if at > around.now]:
            self._alarms[name] = min(times)
        if self._policy.enforce is Enforce.CONTINUOUS:
            since = taint_changes.follow(self._unready.pop(name, {}), state, pods, around)
            if since:
                self._unready[name] = since

    def _kept(self, state: NodeState) -> NodeWait | None:
        """The wait of a node that keeps its taints although it waits for no agent."""
        if taint_changes.removal(state) is None:
            return None
        node, held = state.node, self._held.get(state.node.name)
        cause = held.cause if held is not None else ""
        if not self._git.applied():
            cause = "no commit is read and applied yet"
        elif not self._in.writes:
            cause = "the service observes, and removes no taint"
        elif self._history.is_contested(node.name, node.uid, self._in.clock()):
            cause = "another client adds the taint again and again"
        return NodeWait(node.name, node.uid, state.since, (), cause=cause) if cause else None

    def _changes(self, touched: set[str], now: float) -> Iterator[TaintChange]:
        for name in sorted(touched & self._states.keys()):
            if (change := taint_changes.removal(self._states[name])) is not None:
                yield change
        if self._unready:
            pending = {name for name, one in self._held.items() if one.change.added is not None}
            unready = taint_changes.Unready(self._unready, pending)
            yield from taint_changes.additions(self._states, unready, self._policy, now)

    def _take(self, change: TaintChange, now: float) -> bool:
        """Whether the change is made now; it is then held until the watch shows it."""
        held = self._held.get(change.node)
        if held is not None and held.until > now:
            return False
        at = self._history.removable_at(change.node, change.uid, now)
        if change.added is None and at > now:
            self._held[change.node] = _HeldPatch(change, at)
            return False
        failures, cause = (held.failures, held.cause) if held is not None else (0, "")
        if self._denial.failures:
            if now < self._denial.until:
                self._wait_for_probe(change)
                return False
            self._denial = replace(self._denial, until=now + SHOWN_WITHIN, probe=change.node)
        self._held[change.node] = _HeldPatch(change, now + SHOWN_WITHIN, failures, cause)
        return True

    def _wait_for_probe(self, change: TaintChange) -> None:
        denial = self._denial
        self._held[change.node] = _HeldPatch(change, denial.until, cause=denial.cause)

    async def _patch(self, change: TaintChange) -> None:
        patch: list[dict[str, Any]] | None = taint_changes.removal_patch(change)
        try:
            async with self._requests:
                if self._denial.failures and self._denial.probe != change.node:
                    self._wait_for_probe(change)  # denied since it was taken
                    return
                if change.added is not None:
                    patch = await self._addition(change)
                if patch is None:
                    return  # the watch shows the change later
                body = await self._cluster.patch(NODE, "", change.node, patch, type=PatchType.JSON)
            if not taint_changes.is_made(change, nodes.node_of(body)):
                raise errors.Conflict("the API server set the taints again: an admission webhook")
        except errors.NotFound:
            return
        except errors.NotLeading:
            self._held.pop(change.node, None)
        except errors.ClusterError as error:
            self._failed(change, error)
        else:
            self._permitted()
            self._emit_change(change)
        self.wake()

    def _permitted(self) -> None:
        """Ends a denial; the nodes that waited for this patch are next."""
        denial, self._denial = self._denial, _Denial()
        if denial.failures:
            self._held = {
                name: one for name, one in self._held.items() if one.until != denial.until
            }

    async def _addition(self, change: TaintChange) -> list[dict[str, Any]] | None:
        """The patch that adds a taint to the node as it is now; None if it has changed. To list
        needs no further permission.
        """
        this = Selection(fields=f"metadata.name={change.node}")
        listed = (await self._cluster.list(NODE, this)).items
        return next((taint_changes.addition_patch(change, live) for live in listed), None)

    def _failed(self, change: TaintChange, error: errors.ClusterError) -> None:
        """Retries later, or when the watch shows other taints, whichever is first."""
        held, now = self._held.get(change.node), self._in.clock()
        failures = (held.failures if held is not None else 0) + 1
        until, cause = now + _BACKOFF.delay(failures), f"its taints are not changed: {error}"
        self._held[change.node] = _HeldPatch(change, until, failures, cause)
        if isinstance(error, errors.Forbidden | errors.Unauthorized):
            failures = self._denial.failures + 1
            self._denial = _Denial(failures, now + _BACKOFF.delay(failures), cause, change.node)
        is_race = isinstance(error, errors.Invalid | errors.Conflict)
        reported_at = self._failed_at.get(type(error), -REPORTED_EVERY)
        if failures == (REPORTED_AT if is_race else 1) and now >= reported_at + REPORTED_EVERY:
            self._failed_at[type(error)] = now
            self._in.emit(StartupTaintFailed(now, change.node, change.uid, error))

    def _emit_change(self, change: TaintChange) -> None:
        now, state = self._in.clock(), self._states.get(change.node)
        who = now, change.node, change.uid
        if change.added is not None:
            self._history.added(change.node)
            self._in.emit(StartupTaintAdded(*who, change.added, change.agents))
            return
        self._history.removed(change.node, change.uid, now)
        removed = tuple(change.taints[at] for at in change.removed)
        waited = max(now - state.since, 0.0) if state is not None else 0.0
        self._in.emit(StartupTaintsRemoved(*who, removed, waited, change.agents))

    def _report(self, now: float) -> None:
        """Emits each wait that is too long, again if it is for other agents."""
        for name, wait in self._waits.items():
            if now < wait.since + self._policy.report_after:
                continue
            agents = frozenset(agent.agent for agent in wait.agents)
            if self._leadership.leads and self._reported.get(name) != (wait.uid, agents):
                self._reported[name] = wait.uid, agents
                self._in.emit(NodeWaitsForAgents(now, name, wait.uid, wait))


def _is_of(change: TaintChange, node: Node) -> bool:
    """Whether the node is as it was before the change."""
    return change.uid == node.uid and change.taints == node.taints
