"""Waits for the rollout of one DaemonSet by its health, on watches (`wait`, `rollback --wait`).

A rollout is done when `daemonsets.rollout_status` reports it, as `kubectl rollout status` does.
Health adds what the status does not contain: nodes that only join, and failures of the template,
which end a wait at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds.cli.wait import by_status, watched_agents
from gitops_ds.cli.wait.by_status import RolloutListener
from gitops_ds.cli.wait.watched_agents import WatchOptions
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.daemonset import Counts
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import DAEMONSET, CommitId, Key, short, version_number
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.core.rollouts.staged_rollout import HoldKind
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store, state_store
from gitops_ds.rollouts.state import target_revisions
from gitops_ds.status import agent_lists, agents
from gitops_ds.status.agents import Agent
from gitops_ds.status.tracker import StatusTracker

STATUS_SECONDS = 5.0  # for a read of the status of repositories
POLL_SECONDS = 2.0  # between two reads of the deployer's state, until it has applied the commit


class WaitOptions(msgspec.Struct, frozen=True):
    """The DaemonSet (`ds/NAME`), the commit (an ID or its prefix; empty: any commit) and the time
    limit in seconds.

    `includes` returns whether a commit contains the awaited one; None without a repository. `clock`
    returns seconds since 1970. `progress` receives the nodes that are done.
    """

    name: str
    namespace: str = ""
    commit: str = ""
    seconds: float = 600.0
    includes: Callable[[CommitId], Awaitable[bool]] | None = None
    clock: Callable[[], float] = time.time
    progress: Callable[[Key, RolloutProgress], None] = by_status.ignore


async def wait_for_rollout(
    cluster: ClusterReader, state_namespace: str, options: WaitOptions, say: Callable[[str], None]
) -> Agent:
    """The agent at the end of its rollout. Repeated messages are printed once.

    Raises FailedRollout when its template fails, TimedOut with the last message, NotFound without
    such a DaemonSet if no commit is awaited that could create it, and ClusterError for a permanent
    error.
    """
    last = ""

    def report(message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            say(message)

    await cluster.version()  # an unreachable API server is an error at once
    wait = _Wait(cluster, state_namespace, options, report, _Includes(options.includes))
    watch = WatchOptions(state_namespace, options.clock, report, wait.scope)
    try:
        async with asyncio.timeout(options.seconds):
            try:
                async with watched_agents.watching(cluster, watch) as watched:
                    return await watched.unless_failed(wait.on_watches(watched))
            except errors.Forbidden:
                return await wait.by_status()
    except TimeoutError:
        why = f"not done after {options.seconds:g} seconds: {last or 'the cluster was not read'}"
        raise errors.TimedOut("; ".join(filter(None, (why, await wait.unattended())))) from None


def _edited(agent: Agent, failed: errors.FailedRollout | None) -> str:
    """Which edit ended or halted its rollout by its objects, which others may write too; empty if
    the service wrote that.
    """
    seen = agent.seen
    if failed is not None:
        target = target_revisions.target_of(seen.daemonset, seen.revisions)
        halt = target_revisions.record_of(seen.revisions, target).halt if target else None
        return "" if halt is not None else "the service did not write the halt of its rollout"
    if agent.hold is not None and agent.hold.kind is HoldKind.EDITED:
        return agent.hold.reason
    return next((f"{name} was edited" for name in seen.daemonset.unannounced), "")


class _Includes:
    """Whether a commit contains the awaited one, read from Git once for each commit."""

    def __init__(self, ask: Callable[[CommitId], Awaitable[bool]] | None) -> None:
        """`ask` reads Git; None without a repository."""
        self._ask, self._known = ask, dict[CommitId, bool]()

    async def has(self, commit: CommitId) -> bool:
        """Whether the commit contains the awaited one; False without a repository."""
        if self._ask is None:
            return False
        if commit not in self._known:
            self._known[commit] = await self._ask(commit)
        return self._known[commit]


class _Wait(msgspec.Struct):
    """A wait on a cluster. `report` receives each message; `staged` is the agent in its staged
    rollout, None without one.
    """

    cluster: ClusterReader
    state_namespace: str
    options: WaitOptions
    report: Callable[[str], None]
    includes: _Includes
    staged: Agent | None = None

    @property
    def scope(self) -> agent_lists.AgentScope:
        return agent_lists.AgentScope((self.options.name,), self.options.namespace)

    def _agent(self, fleet: tuple[Agent, ...]) -> Agent:
        return agents.find_agent(fleet, self.options.name, self.options.namespace)

    async def unattended(self) -> str:
        """That no running service continues the staged rollout; empty without one, if a service
        does, and if that is unknown.
        """
        owner = self.staged.owner if self.staged is not None else ""
        if not owner:
            return ""
        source: SourceStatus | None = None
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                now = self.options.clock()
                sources = await source_status_store.load_all(
                    self.cluster, self.state_namespace, now
                )
                source = sources.get(owner)
        except (errors.ClusterError, TimeoutError):
            return ""
        if source is not None and source.active:
            return ""
        followed = source.repository if source is not None else f"the repository of owner {owner}"
        return f"no running service follows {followed}, and only a service continues a rollout"

    async def _see_rollout(self, agent: Agent) -> None:
        """Reports at the start of a staged rollout that no service continues it."""
        is_new = self.staged is None
        self.staged = agent if agent.rollout is not None else None
        if is_new and (why := await self.unattended()):
            self.report(why)

    async def on_watches(self, watched: watched_agents.WatchedAgents) -> Agent:
        """The agent at the end of its rollout."""
        tracker, version = watched.tracker, 0
        await watched_agents.synced(watched)
        while self.options.commit:
            try:
                missing = await self._missing(tracker.agents())
                if not missing:
                    # the watch may still have the object before the commit
                    version = await self._version(self._agent(tracker.agents()).key)
                    break
                self.report(missing)
            except errors.GitopsError as error:
                if not error.retryable:
                    raise
                self.report(f"{error}; retrying")
            await asyncio.sleep(POLL_SECONDS)
        return await self._rolled_out(tracker, version)

    async def by_status(self) -> Agent:
        """The agent at the end of its rollout, for an account that may not list nodes: only by the
        status of the DaemonSet, like `kubectl rollout status`. Raises Forbidden without another
        permission.
        """
        options = self.options
        key = await self._key_at_commit()
        listener = RolloutListener(self.report, options.progress, options.clock)
        while True:
            failed: errors.FailedRollout | None = None
            try:
                await by_status.wait_for_rollouts(self.cluster, [key], None, listener)
            except errors.FailedRollout as error:
                failed = error
            now = options.clock()
            agent = self._agent(
                await agent_lists.list_agents(
                    self.cluster, self.state_namespace, now, scope=self.scope
                )
            )
            if edit := _edited(agent, failed):
                self.report(f"{agent.key}: {edit}")
            elif failed is not None:
                raise failed
            elif not (refused := await self._refusal(agent)):
                return agent
            else:
                self.report(f"{agent.key} has an earlier commit: {refused}")
            await asyncio.sleep(POLL_SECONDS)

    async def _key_at_commit(self) -> Key:
        """The DaemonSet, as soon as the awaited commit is applied to it."""
        watch = WatchOptions(self.state_namespace, self.options.clock, self.report, self.scope)
        async for fleet in watched_agents.polled_agents(self.cluster, watch):
            missing = self.options.commit and await self._missing(fleet)
            if not missing:
                return self._agent(fleet).key
            self.report(missing)
        raise AssertionError("endless")

    async def _version(self, key: Key) -> int:
        """The version of the DaemonSet after the apply, read from the API server. The start of a
        staged rollout changes only annotations, not the generation.
        """
        body = await self.cluster.get(DAEMONSET, key.namespace, key.name)
        return version_number(str(body["metadata"].get("resourceVersion") or ""))

    async def _missing(self, fleet: tuple[Agent, ...]) -> str:
        """Why the DaemonSet is not at the commit; empty if the commit, or one that contains it, was
        applied. A template of an edit in the cluster is at no commit.
        """
        try:
            agent = self._agent(fleet)
        except errors.NoMatch as error:
            return f"not created yet ({error}); waits for commit {short(self.options.commit)}"
        commit, owner = self.options.commit, agent.owner
        carries = agent.seen.daemonset.annotations.get(names.COMMIT, "")
        state = await state_store.load(self.cluster, self.state_namespace, owner) if owner else None
        applied = state.last_good if state else None
        if state is not None and agents.is_foreign(replace(agent, state=state)):
            return f"{agent.key} has a template that no commit gave: it was edited in the cluster"
        if carries.startswith(commit) or (applied and applied.startswith(commit)):
            return ""
        if applied and await self.includes.has(applied):
            return ""
        return (
            f"{agent.key} is at commit {short(applied or carries) or 'none'}, and "
            f"{short(commit)} is not applied yet"
        )

    async def _rolled_out(self, tracker: StatusTracker, version: int) -> Agent:
        """The agent when its DaemonSet is rolled out, at that version of it or a later one."""
        changes = tracker.changed()
        while True:
            agent = self._agent(tracker.agents())
            if version_number(agent.seen.daemonset.version) < version:
                await anext(changes)
                continue
            self.options.progress(agent.key, agents.nodes_done(agent))
            await self._see_rollout(agent)
            self.report(f"{agent.health.state}: {agent.health.message}")
            if agent.health.state is HealthState.FAILED:
                raise errors.FailedRollout(f"{agent.key}: {agent.health.message}")
            # Under OnDelete an agent is healthy with old pods; the wait for a commit ends with the
            # last of them. The counters are those of the DaemonSet's own template, which a staged
            # rollout sets at its end.
            counts = agent.seen.daemonset.counts or Counts()
            updated = counts.updated >= counts.desired or not self.options.commit
            if agent.health.state is HealthState.HEALTHY and updated:
                if not (refused := await self._refusal(agent)):
                    return agent
                self.report(f"{agent.key} has an earlier commit: {refused}")
                await asyncio.sleep(POLL_SECONDS)
                continue
            await anext(changes)

    async def _refusal(self, agent: Agent) -> str:
        """Why the newest commit is not applied to the DaemonSet, while no commit is awaited; empty
        if it is, and without a service that follows Git.
        """
        if self.options.commit:
            return ""
        try:
            known = await agents.with_state(self.cluster, self.state_namespace, agent)
        except errors.ClusterError as error:
            if not error.retryable:
                raise
            return f"{error}; retrying"
        source = known.source
        return source.message if source is not None and source.refuses(agent.key) else ""
