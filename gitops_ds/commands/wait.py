"""Waits for rollouts on watches: of one DaemonSet by its health (`wait`, `status --watch`), and of
the DaemonSets of a plan by their status (`apply --wait`).

A rollout is done when `apimachinery.rollout_status` reports it, as `kubectl rollout status` does.
Health adds what the status does not contain: nodes that only join, and failures of the template,
which end a wait at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gitops_ds import errors
from gitops_ds.apimachinery import revisions, rollout_status, target_revisions
from gitops_ds.client import informer
from gitops_ds.controller.controller import Controller, Powers
from gitops_ds.daemonset import competing_controller
from gitops_ds.deployer import source_status_store, state_store
from gitops_ds.fleet import agents
from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, EventType, Listing, Selection, WatchEvent
from gitops_ds.model.events.base import Event, WatchFailed
from gitops_ds.model.health import HealthState
from gitops_ds.model.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    Body,
    CommitId,
    Key,
    Resource,
    key_of,
    short,
)
from gitops_ds.model.rollouts.staged_rollout import Halt

T = TypeVar("T")
# errors of a list or a watch that do not pass
_LASTING = (
    errors.Forbidden,
    errors.Unauthorized,
    errors.NotFound,
    errors.BadRequest,
    errors.Invalid,
)
POLL_SECONDS = 2.0  # between two reads of the deployer's state, until it has applied the commit


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """The DaemonSet (`ds/NAME`), the commit (an ID or its prefix; empty: any commit) and the time
    limit in seconds.

    `includes` returns whether a commit contains the awaited one; None without a repository. `clock`
    returns seconds since 1970.
    """

    name: str
    namespace: str = ""
    commit: str = ""
    seconds: float = 600.0
    includes: Callable[[CommitId], Awaitable[bool]] | None = None
    clock: Callable[[], float] = time.time


async def wait_for_rollout(
    cluster: Cluster, state_namespace: str, options: WaitOptions, say: Callable[[str], None]
) -> Agent:
    """The agent at the end of its rollout. Repeated messages are printed once.

    Raises FailedRollout when its template fails, TimedOut with the last message, NotFound without
    such a DaemonSet if no commit is awaited that could create it, and ClusterError for an error
    that does not pass.
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
                async with watching(cluster, options.clock, report) as watched:
                    return await watched.unless_failed(
                        _wait(cluster, state_namespace, options, (watched, report))
                    )
            except errors.Forbidden:
                if options.commit:
                    raise
                return await _wait_by_status(cluster, state_namespace, options, report)
    except TimeoutError:
        raise errors.TimedOut(
            f"not done after {options.seconds:g} seconds: {last or 'the cluster was not read'}"
        ) from None


async def _wait_by_status(
    cluster: Cluster, state_namespace: str, options: WaitOptions, report: Callable[[str], None]
) -> Agent:
    """The agent at the end of its rollout, for an account that may not list nodes: by the status of
    the DaemonSet alone, as `kubectl rollout status` waits. Raises Forbidden without another right.
    """
    found = await agents.list_agents(cluster, state_namespace, options.clock(), report)
    key = agents.find_agent(found, options.name, options.namespace).key
    await wait_for_rollouts(cluster, [key], None, report)
    found = await agents.list_agents(cluster, state_namespace, options.clock())
    return agents.find_agent(found, options.name, options.namespace)


@dataclass(frozen=True, slots=True)
class WatchedAgents:
    """The status of all agents, kept current by watches; `failure` gets the error that ends
    them.
    """

    tracker: StatusTracker
    controller: Controller
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


@asynccontextmanager
async def watching(
    cluster: Cluster, clock: Callable[[], float], say: Callable[[str], None]
) -> AsyncIterator[WatchedAgents]:
    """The agents, watched while the context is open. `say` receives errors that are retried."""
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

    controller = Controller(cluster, Powers.PACE, receive, clock=clock, chance=random.random)
    tracker = StatusTracker(controller, dict, clock)
    tasks = [asyncio.create_task(controller.run()), asyncio.create_task(tracker.run())]
    for task in tasks:
        task.add_done_callback(finished)
    try:
        yield WatchedAgents(tracker, controller, failure)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        failure.cancel()


async def synced(watched: WatchedAgents) -> None:
    """Returns when the status of every agent is known."""
    changes = watched.tracker.changed()
    await watched.controller.synced.wait()
    while len(watched.tracker.agents()) < sum(
        key.name != competing_controller.PROBE for key in watched.controller.keys
    ):
        await anext(changes)


STATE_SECONDS = 5.0  # between two reads of the owner's state


async def follow(
    cluster: Cluster,
    state_namespace: str,
    options: WaitOptions,
    show: Callable[[Agent | str], None],
) -> None:
    """Shows the agent after each change until cancelled; errors that are retried are shown as text.

    Raises NotFound without such a DaemonSet, and ClusterError for an error that does not pass.
    """
    await cluster.version()
    async with watching(cluster, options.clock, show) as watched:
        await watched.unless_failed(_follow(cluster, state_namespace, options, (watched, show)))


async def _follow(
    cluster: Cluster,
    state_namespace: str,
    options: WaitOptions,
    watch: tuple[WatchedAgents, Callable[[Agent | str], None]],
) -> None:
    watched, show = watch
    loop, read_at, known = asyncio.get_running_loop(), -math.inf, None
    changes = watched.tracker.changed()
    await synced(watched)
    while True:
        agent = agents.find_agent(watched.tracker.agents(), options.name, options.namespace)
        if known is None or loop.time() - read_at >= STATE_SECONDS:
            with contextlib.suppress(errors.ClusterUnreachable, errors.ServerFault):
                known, read_at = (
                    await agents.with_state(cluster, state_namespace, agent),
                    loop.time(),
                )
        show(replace(agent, state=known.state, source=known.source) if known else agent)
        # a status that only its service writes is read with the next state
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(source_status_store.HEARTBEAT / 10):
                while agent.key not in await anext(changes):
                    pass


async def _wait(
    cluster: Cluster,
    state_namespace: str,
    options: WaitOptions,
    watch: tuple[WatchedAgents, Callable[[str], None]],
) -> Agent:
    watched, report = watch
    tracker, generation, includes = watched.tracker, 0, _Includes(options.includes)
    await synced(watched)
    while options.commit:
        try:
            missing = await _missing(cluster, state_namespace, (options, includes), tracker)
            if not missing:
                # the watch may still have the object as it was before the commit
                generation = await _generation(
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
    return await _rolled_out(tracker, options, report, generation)


async def _generation(cluster: Cluster, key: Key) -> int:
    """The generation to roll out, read from the API server."""
    return int(
        (await cluster.get(DAEMONSET, key.namespace, key.name))["metadata"].get("generation") or 0
    )


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
    wanted: tuple[WaitOptions, _Includes],
    tracker: StatusTracker,
) -> str:
    """Why the DaemonSet is not at the commit; empty if the commit, or one that contains it, was
    applied.
    """
    options, includes = wanted
    try:
        agent = agents.find_agent(tracker.agents(), options.name, options.namespace)
    except errors.NoMatch as error:
        return str(error)
    owner, carries = (
        agents.owner(agent.seen),
        agent.seen.daemonset.annotations.get(names.COMMIT, ""),
    )
    known = await state_store.load(cluster, state_namespace, owner) if owner else None
    applied = known.last_good if known else None
    if carries.startswith(options.commit) or (applied and applied.startswith(options.commit)):
        return ""
    if applied and await includes.has(applied):
        return ""
    return (
        f"{agent.key} is at commit {short(applied or carries) or 'none'}, and "
        f"{short(options.commit)} is not applied yet"
    )


async def _rolled_out(
    tracker: StatusTracker, options: WaitOptions, report: Callable[[str], None], generation: int
) -> Agent:
    """The agent when `generation` of its DaemonSet, or a later one, is rolled out."""
    changes = tracker.changed()
    while True:
        agent = agents.find_agent(tracker.agents(), options.name, options.namespace)
        if agent.seen.daemonset.generation < generation:
            await anext(changes)
            continue
        report(f"{agent.health.state}: {agent.health.message}")
        if agent.health.state is HealthState.FAILED:
            raise errors.FailedRollout(f"{agent.key}: {agent.health.message}")
        # Under OnDelete an agent is healthy with old pods; the wait for a commit ends with the last
        # of them.
        updated = agent.counts.updated >= agent.counts.desired or not options.commit
        if agent.health.state is HealthState.HEALTHY and updated:
            return agent
        await anext(changes)


async def wait_for_rollouts(
    cluster: Cluster, keys: Sequence[Key], seconds: float | None, report: Callable[[str], None]
) -> None:
    """Returns when each DaemonSet is rolled out at its current generation. Errors that are retried
    are reported.

    `seconds` is the time limit; None is without one. Raises TimedOut with what is missing,
    FailedRollout for a staged rollout that is halted, and ClusterError for an error that does not
    pass.
    """
    watches: list[asyncio.Task[None]] = []

    def follow(resource: Resource, namespace: str, sink: informer.Sink) -> None:
        which = Selection(namespace=namespace)
        run = informer.run(cluster, resource, which, sink, random=random.random)
        watches.append(asyncio.create_task(run))

    pending = _PendingRollouts(
        keys, report, lambda space: follow(CONTROLLER_REVISION, space, pending.receive_target)
    )
    for key in keys:
        await pending.read(cluster, key)
    for namespace in sorted({key.namespace for key in pending.messages}):
        follow(DAEMONSET, namespace, functools.partial(pending.receive, namespace))
    try:
        if not pending.messages:
            return
        async with asyncio.timeout(seconds):
            await pending.done
    except TimeoutError:
        raise errors.TimedOut(
            f"not rolled out after {seconds:g} seconds: {pending.summary()}"
        ) from None
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


class _PendingRollouts:
    """DaemonSets whose rollout is not done, each with the last message; `done` completes with the
    last rollout, or fails.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        report: Callable[[str], None],
        follow_targets: Callable[[str], None],
    ) -> None:
        """`report` receives each new message. `follow_targets` watches the target revisions of a
        namespace, for the first staged rollout in it.
        """
        self.messages = dict.fromkeys(keys, "")
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._generations = dict.fromkeys(keys, 0)
        self._report, self._follow_targets = report, follow_targets
        self._targets: dict[Key, str] = {}
        self._halts: dict[tuple[str, str], Halt] = {}  # by namespace and target revision

    def summary(self) -> str:
        """The last message of each DaemonSet."""
        return "; ".join(f"{key}: {message}" for key, message in self.messages.items())

    async def read(self, cluster: Cluster, key: Key) -> None:
        """Reads a DaemonSet once: a watch may still have the generation before the apply."""
        try:
            self._judge(await cluster.get(DAEMONSET, key.namespace, key.name))
        except errors.ClusterError as error:
            if not error.retryable:
                raise
            self._update(key, f"{error}; retrying")

    def receive(self, namespace: str, event: informer.InformerEvent) -> None:
        """Handles an event of the watch of a namespace."""
        match event:
            case Listing(items=items):
                for body in items:
                    self._judge(body)
                listed = {key_of(body) for body in items}
                for key in [key for key in self.messages if key.namespace == namespace]:
                    if key not in listed:
                        self._fail(_not_found(key))
            case WatchEvent(type=EventType.DELETED, object=body) if key_of(body) in self.messages:
                self._fail(_not_found(key_of(body)))
            case WatchEvent(type=EventType.ADDED | EventType.MODIFIED, object=body):
                self._judge(body)
            case informer.Failing(error=error) if not error.retryable and not isinstance(
                error, errors.Expired
            ):
                self._fail(error)
            case informer.Failing(error=error):
                for key in self.messages:
                    self._update(key, f"{error}; retrying")
            case _:  # bookmarks and versions do not change an object
                pass

    def receive_target(self, event: informer.InformerEvent) -> None:
        """Handles an event of the watch of target revisions: a halted rollout does not end."""
        match event:
            case Listing(items=items):
                bodies: Iterable[Body] = items
            case WatchEvent(type=EventType.ADDED | EventType.MODIFIED, object=body):
                bodies = (body,)
            case _:  # without the right to watch them, the time limit ends the wait
                bodies = ()
        for body in bodies:
            revision = revisions.revision_of(body)
            halt = target_revisions.record_in(revision).halt if revision else None
            place = (str(body["metadata"].get("namespace")), str(body["metadata"]["name"]))
            self._halts.pop(place, None)
            if halt is not None:
                self._halts[place] = halt
        for key in tuple(self._targets):
            self._end_if_halted(key)

    def _end_if_halted(self, key: Key) -> None:
        halt = self._halts.get((key.namespace, self._targets.get(key, "")))
        if halt is not None and key in self.messages:
            why = f"the rollout is halted in stage {halt.stage}: {halt.message}"
            self._fail(errors.FailedRollout(f"{key}: {why}"))

    def _follow_target(self, key: Key, body: Body) -> None:
        """Watches the target revisions once a DaemonSet of their namespace names one."""
        target = str((body["metadata"].get("annotations") or {}).get(names.TARGET) or "")
        followed = {one.namespace for one in self._targets}
        self._targets.pop(key, None)
        if target:
            self._targets[key] = target
            if key.namespace not in followed:
                self._follow_targets(key.namespace)
            self._end_if_halted(key)

    def _judge(self, body: Body) -> None:
        key, generation = key_of(body), body["metadata"].get("generation") or 0
        if key not in self.messages or generation < self._generations[key]:
            return
        self._generations[key] = generation
        status = rollout_status.judge(body)
        self._follow_target(key, body)
        self._update(key, status.message)
        if status.done:
            del self.messages[key]
        if not self.messages and not self.done.done():
            self.done.set_result(None)

    def _update(self, key: Key, message: str) -> None:
        if message != self.messages[key]:
            self.messages[key] = message
            self._report(f"{key}: {message}")

    def _fail(self, error: errors.GitopsError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def _not_found(key: Key) -> errors.NotFound:
    return errors.NotFound(f'daemonsets.apps "{key.name}" not found', 404, "NotFound")
