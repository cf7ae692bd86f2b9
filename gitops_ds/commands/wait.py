"""Waits for the rollout of one DaemonSet by its health, on watches (`wait`, `status --watch`).

A rollout is done when `daemonsets.rollout_status` reports it, as `kubectl rollout status` does.
Health adds what the status does not contain: nodes that only join, and failures of the template,
which end a wait at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds import errors
from gitops_ds.commands import rollout_waiter, watched_agents
from gitops_ds.commands.rollout_waiter import RolloutListener
from gitops_ds.deployer import source_status_store, state_store
from gitops_ds.fleet import agents
from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.daemonset import Counts
from gitops_ds.model.health import HealthState
from gitops_ds.model.objects import DAEMONSET, CommitId, Key, short, version_number
from gitops_ds.model.rollouts.rollout_progress import RolloutProgress
from gitops_ds.model.values import replace

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
    progress: Callable[[Key, RolloutProgress], None] = rollout_waiter.ignore


async def wait_for_rollout(
    cluster: Cluster, state_namespace: str, options: WaitOptions, say: Callable[[str], None]
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
    try:
        async with asyncio.timeout(options.seconds):
            try:
                async with watched_agents.watching(cluster, options.clock, report) as watched:
                    return await watched.unless_failed(
                        _wait(cluster, state_namespace, options, (watched, report))
                    )
            except errors.Forbidden:
                return await _wait_by_status(cluster, state_namespace, options, report)
    except TimeoutError:
        raise errors.TimedOut(
            f"not done after {options.seconds:g} seconds: {last or 'the cluster was not read'}"
        ) from None


async def _wait_by_status(
    cluster: Cluster, state_namespace: str, options: WaitOptions, report: Callable[[str], None]
) -> Agent:
    """The agent at the end of its rollout, for an account that may not list nodes: only by the
    status of the DaemonSet, like `kubectl rollout status`. Raises Forbidden without another
    permission.
    """
    key = await _key_at_commit(cluster, state_namespace, options, report)
    await rollout_waiter.wait_for_rollouts(
        cluster, [key], None, RolloutListener(report, options.progress, options.clock)
    )
    fleet = await agents.list_agents(cluster, state_namespace, options.clock())
    return agents.find_agent(fleet, options.name, options.namespace)


async def _key_at_commit(
    cluster: Cluster, state_namespace: str, options: WaitOptions, report: Callable[[str], None]
) -> Key:
    """The DaemonSet, as soon as the awaited commit is applied to it."""
    wait = (options, _Includes(options.includes))
    async for fleet in watched_agents.polled_agents(
        cluster, state_namespace, options.clock, report
    ):
        missing = options.commit and await _missing(cluster, state_namespace, wait, fleet)
        if not missing:
            return agents.find_agent(fleet, options.name, options.namespace).key
        report(missing)
    raise AssertionError("endless")


async def follow(
    cluster: Cluster,
    state_namespace: str,
    options: WaitOptions,
    show: Callable[[Agent | str], None],
) -> None:
    """Shows the agent after each change (without permission to watch nodes, after each read) until
    cancelled; errors that are retried are shown as text.

    Raises NotFound without such a DaemonSet, and ClusterError for a permanent error.
    """
    await cluster.version()
    try:
        async with watched_agents.watching(cluster, options.clock, show) as watched:
            await watched.unless_failed(_follow(cluster, state_namespace, options, (watched, show)))
    except errors.Forbidden:
        async for fleet in watched_agents.polled_agents(
            cluster, state_namespace, options.clock, show
        ):
            show(agents.find_agent(fleet, options.name, options.namespace))


async def _follow(
    cluster: Cluster,
    state_namespace: str,
    options: WaitOptions,
    watch: tuple[watched_agents.WatchedAgents, Callable[[Agent | str], None]],
) -> None:
    watched, show = watch
    loop, read_at, state = asyncio.get_running_loop(), -math.inf, None
    changes = watched.tracker.changed()
    await watched_agents.synced(watched)
    while True:
        agent = agents.find_agent(watched.tracker.agents(), options.name, options.namespace)
        if state is None or loop.time() - read_at >= watched_agents.STATE_SECONDS:
            with contextlib.suppress(errors.ClusterUnreachable, errors.ServerFault):
                state, read_at = (
                    await agents.with_state(cluster, state_namespace, agent),
                    loop.time(),
                )
        show(replace(agent, state=state.state, source=state.source) if state else agent)
        # a status that only its service writes is read with the next state
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(source_status_store.HEARTBEAT / 10):
                while agent.key not in await anext(changes):
                    pass


async def _wait(
    cluster: Cluster,
    state_namespace: str,
    options: WaitOptions,
    watch: tuple[watched_agents.WatchedAgents, Callable[[str], None]],
) -> Agent:
    watched, report = watch
    tracker, version, includes = watched.tracker, 0, _Includes(options.includes)
    await watched_agents.synced(watched)
    while options.commit:
        try:
            fleet = tracker.agents()
            missing = await _missing(cluster, state_namespace, (options, includes), fleet)
            if not missing:
                # the watch may still have the object before the commit
                version = await _version(
                    cluster,
                    agents.find_agent(tracker.agents(), options.name, options.namespace).key,
                )
                break
            report(missing)
        except errors.GitopsError as error:
            if not error.retryable:
                raise
            report(f"{error}; retrying")
        await asyncio.sleep(POLL_SECONDS)
    return await _rolled_out(tracker, options, report, version)


async def _version(cluster: Cluster, key: Key) -> int:
    """The version of the DaemonSet after the apply, read from the API server. The start of a staged
    rollout changes only annotations, not the generation.
    """
    body = await cluster.get(DAEMONSET, key.namespace, key.name)
    return version_number(str(body["metadata"].get("resourceVersion") or ""))


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


async def _missing(
    cluster: Cluster,
    state_namespace: str,
    wait: tuple[WaitOptions, _Includes],
    fleet: tuple[Agent, ...],
) -> str:
    """Why the DaemonSet is not at the commit; empty if the commit, or one that contains it, was
    applied.
    """
    options, includes = wait
    try:
        agent = agents.find_agent(fleet, options.name, options.namespace)
    except errors.NoMatch as error:
        return str(error)
    owner, carries = (
        agents.owner(agent.seen),
        agent.seen.daemonset.annotations.get(names.COMMIT, ""),
    )
    state = await state_store.load(cluster, state_namespace, owner) if owner else None
    applied = state.last_good if state else None
    if carries.startswith(options.commit) or (applied and applied.startswith(options.commit)):
        return ""
    if applied and await includes.has(applied):
        return ""
    return (
        f"{agent.key} is at commit {short(applied or carries) or 'none'}, and "
        f"{short(options.commit)} is not applied yet"
    )


async def _rolled_out(
    tracker: StatusTracker, options: WaitOptions, report: Callable[[str], None], version: int
) -> Agent:
    """The agent when its DaemonSet is rolled out, at that version of it or a later one."""
    changes = tracker.changed()
    while True:
        agent = agents.find_agent(tracker.agents(), options.name, options.namespace)
        if version_number(agent.seen.daemonset.version) < version:
            await anext(changes)
            continue
        options.progress(agent.key, agents.nodes_done(agent))
        report(f"{agent.health.state}: {agent.health.message}")
        if agent.health.state is HealthState.FAILED:
            raise errors.FailedRollout(f"{agent.key}: {agent.health.message}")
        # Under OnDelete an agent is healthy with old pods; the wait for a commit ends with the last
        # of them. The counters are those of the DaemonSet's own template, which a staged rollout
        # sets at its end.
        counts = agent.seen.daemonset.counts or Counts()
        updated = counts.updated >= counts.desired or not options.commit
        if agent.health.state is HealthState.HEALTHY and updated:
            return agent
        await anext(changes)
