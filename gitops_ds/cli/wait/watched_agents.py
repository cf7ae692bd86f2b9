"""The status of all agents on watches, for commands that wait or follow; by lists, for an account
that may not watch nodes, such as one with the ClusterRole view.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from gitops_ds.controller.observer import Observer
from gitops_ds.core import errors
from gitops_ds.core.cluster import BRIEF, EVERYTHING, ClusterReader, Selection
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.events.base import Event, WatchFailed
from gitops_ds.core.objects import DAEMONSET, Key
from gitops_ds.daemonset import competing_controller
from gitops_ds.deploy import source_status_store
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.rollouts.state import daemonset_statements
from gitops_ds.status import agent_lists
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agent_lists import EVERY, AgentScope
from gitops_ds.status.agents import Agent, Owners
from gitops_ds.status.tracker import StatusTracker

T = TypeVar("T")
# permanent errors of a list or a watch
_LASTING = (
    errors.Forbidden,
    errors.Unauthorized,
    errors.NotFound,
    errors.BadRequest,
    errors.Invalid,
)
STATE_SECONDS = 5.0  # between two reads of the owner's state


class WatchedAgents(msgspec.Struct, frozen=True):
    """The status of all agents, kept current by watches; `failure` gets the error that ends
    them.
    """

    tracker: StatusTracker
    observer: Observer
    failure: asyncio.Future[None]

    async def unless_failed(self, work: Awaitable[T]) -> T:
        """The result of the work. Raises the error of the watches as soon as one occurs."""
        task = asyncio.ensure_future(work)
        try:
            waited: set[asyncio.Future[Any]] = {task, self.failure}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.failure.result()
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class WatchOptions(msgspec.Struct, frozen=True):
    """The namespace of the deployer's state, empty if it announced nothing about these agents, and
    the clock, in seconds since 1970.

    `say` receives errors that are retried. Of a scope with one name only those agents are current,
    and only the pods that decide about them are watched.
    """

    state_namespace: str
    clock: Callable[[], float]
    say: Callable[[str], None]
    scope: AgentScope = EVERY


@asynccontextmanager
async def watching(cluster: ClusterReader, options: WatchOptions) -> AsyncIterator[WatchedAgents]:
    """The agents, watched while the context is open."""
    say, clock = options.say, options.clock
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(event: Event) -> None:
        if isinstance(event, WatchFailed) and not failure.done():
            if isinstance(event.error, _LASTING):
                failure.set_exception(event.error)
            else:
                say(f"{event.resource.plural}: {event.error}; retrying")

    def finished(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not failure.done() and (error := task.exception()) is not None:
            failure.set_exception(error)

    observer = Observer(cluster, receive, clock=clock, chance=random.random)
    if options.state_namespace:
        observer.follow_ledger(options.state_namespace)
    scope = options.scope

    def includes(key: Key) -> bool:
        # without the agent all are known, for a message with the nearest name
        return scope.has(key) or not any(map(scope.has, observer.keys))

    has_one_name = len(scope.names) == 1
    if has_one_name:
        observer.watch_pods(await _first_pods(cluster, scope))
    tracker = StatusTracker(observer, dict, clock)
    tracker.track_only(includes)
    tasks = [asyncio.create_task(observer.run()), asyncio.create_task(tracker.run())]
    if has_one_name:
        tasks.append(asyncio.create_task(_follow_pods(observer, tracker, scope)))
    for task in tasks:
        task.add_done_callback(finished)
    try:
        yield WatchedAgents(tracker, observer, failure)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        failure.cancel()


async def _first_pods(cluster: ClusterReader, scope: AgentScope) -> Selection:
    """The pods of the agent before anything is watched; all if that is unknown."""
    named = f"metadata.name={fleet_agents.name_of(scope.names[0])}"
    with contextlib.suppress(errors.ClusterError):  # the watches report it
        chosen = await _daemonsets(cluster, Selection(scope.namespace, fields=named))
        is_staged = any(daemonset_statements.has_target(one.annotations) for one in chosen)
        return _pods_of(chosen, await _daemonsets(cluster) if is_staged else ())
    return BRIEF


async def _daemonsets(cluster: ClusterReader, which: Selection = EVERYTHING) -> Sequence[DaemonSet]:
    listing = await cluster.list(DAEMONSET, which)
    return [daemonsets.daemonset_of(body) for body in listing.items]


async def _follow_pods(observer: Observer, tracker: StatusTracker, scope: AgentScope) -> None:
    """Watches other pods when others decide about the agent: with a rollout that waits for other
    agents, or as soon as a pod has no place.
    """
    async for _ in tracker.changed():
        chosen = [agent.seen for agent in tracker.agents() if scope.has(agent.key)]
        needs_others = any(map(agent_lists.needs_others, chosen))
        every = [] if needs_others else [*observer.cache.daemonsets]
        observer.watch_pods(
            BRIEF if needs_others else _pods_of([seen.daemonset for seen in chosen], every)
        )


def _pods_of(chosen: Sequence[DaemonSet], every: Sequence[DaemonSet]) -> Selection:
    """One watch with the pods that decide about these DaemonSets; all without one."""
    lists = agent_lists.pod_lists(chosen, every)
    return lists[0] if len(lists) == 1 else BRIEF


async def synced(watched: WatchedAgents) -> None:
    """Returns when the status of every agent is known."""
    changes = watched.tracker.changed()
    await watched.observer.synced.wait()
    while len(watched.tracker.agents()) < sum(
        key.name != competing_controller.PROBE
        for key in filter(watched.tracker.includes, watched.observer.keys)
    ):
        await anext(changes)


POLL_SECONDS = 2.0  # between two reads


async def polled_agents(
    cluster: ClusterReader, options: WatchOptions
) -> AsyncIterator[tuple[Agent, ...]]:
    """The agents of the scope, read every few seconds; all while it has none. `say` receives each
    message once.

    Raises ClusterError for a permanent error.
    """
    messages = set[str]()

    def once(message: str) -> None:
        if message not in messages:
            messages.add(message)
            options.say(message)

    while True:
        now, space = options.clock(), options.state_namespace
        try:
            try:
                yield await agent_lists.list_agents(cluster, space, now, once, options.scope)
            except errors.NoMatch:
                yield await agent_lists.list_agents(cluster, space, now, once)
        except errors.ClusterError as error:
            if not error.retryable:
                raise
            once(f"{error}; retrying")
        await asyncio.sleep(POLL_SECONDS)


Fleet = tuple[Agent, ...]


async def follow(
    cluster: ClusterReader,
    options: WatchOptions,
    show: Callable[[Fleet], None],
    which: Callable[[Fleet], Fleet] = tuple,
) -> None:
    """Shows the agents that `which` returns at the start and after each change (without permission
    to watch nodes, after each read), until cancelled. Raises ClusterError for a permanent error.
    """
    await cluster.version()
    try:
        async with watching(cluster, options) as watched:
            await watched.unless_failed(_follow(cluster, options, watched, (show, which)))
    except errors.Forbidden:
        async for agents in polled_agents(cluster, options):
            show(which(agents))


async def _follow(
    cluster: ClusterReader,
    options: WatchOptions,
    watched: WatchedAgents,
    shown: tuple[Callable[[Fleet], None], Callable[[Fleet], Fleet]],
) -> None:
    show, which = shown
    loop, read_at, owners = asyncio.get_running_loop(), -math.inf, Owners({}, {})
    changes = watched.tracker.changed()
    await synced(watched)
    while True:
        agents = which(watched.tracker.agents())
        if loop.time() - read_at >= STATE_SECONDS:
            with contextlib.suppress(errors.ClusterUnreachable, errors.ServerFault):
                owners = await fleet_agents.read_owners(
                    cluster,
                    options.state_namespace,
                    [agent.seen for agent in agents],
                    options.clock(),
                )
                read_at = loop.time()
        show(tuple(map(owners.of, agents)))
        # a status that only its service writes is read with the next states
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(source_status_store.HEARTBEAT / 10):
                await anext(changes)
