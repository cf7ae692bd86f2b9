"""Waits on watches for the DaemonSets of a plan by their status (`apply --wait`), as
`kubectl rollout status` does; during a staged rollout also by its stages.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from gitops_ds.cli.wait import watched_agents
from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader, EventType, Listing, Selection, WatchEvent
from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    Body,
    Key,
    Resource,
    annotations_of,
    key_of,
    version_number,
)
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.core.rollouts.staged_rollout import Halt
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.kube.client import informer
from gitops_ds.rollouts.state import daemonset_statements, target_revisions
from gitops_ds.status import agents, health
from gitops_ds.status.agent_lists import EVERY, AgentScope


def ignore(_key: Key, _progress: RolloutProgress) -> None:
    """Drops the progress."""


class RolloutListener(msgspec.Struct, frozen=True):
    """`report` receives each new message, also errors that are retried; `progress` the nodes that
    are done. `clock` returns seconds since 1970.
    """

    report: Callable[[str], None]
    progress: Callable[[Key, RolloutProgress], None] = ignore
    clock: Callable[[], float] = time.time


async def wait_for_rollouts(
    cluster: ClusterReader, keys: Sequence[Key], seconds: float | None, listener: RolloutListener
) -> None:
    """Returns when each DaemonSet is rolled out at its current generation.

    `seconds` is the time limit; None: no limit. Raises TimedOut with what is missing, FailedRollout
    for a staged rollout that is halted, and ClusterError for a permanent error.
    """
    watches: list[asyncio.Task[None]] = []

    def follow(resource: Resource, namespace: str, sink: informer.Sink) -> None:
        which = Selection(namespace=namespace)
        run = informer.run(cluster, resource, which, sink, random=random.random)
        watches.append(asyncio.create_task(run))

    def follow_targets(namespace: str) -> None:
        follow(CONTROLLER_REVISION, namespace, pending.receive_target)
        if not pending.staged:
            pending.staged = True
            watches.append(asyncio.create_task(_follow_stages(cluster, pending, listener)))

    pending = _PendingRollouts(keys, listener, follow_targets)
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


async def _follow_stages(
    cluster: ClusterReader, pending: _PendingRollouts, listener: RolloutListener
) -> None:
    """Reports the stages of the pending rollouts. Without permission to list nodes and pods, only
    the status is followed.
    """
    # the person who applied them has announced nothing
    names = tuple(key.name for key in pending.messages)
    scope = AgentScope(names, next(iter(pending.messages)).namespace) if len(names) == 1 else EVERY
    watch = watched_agents.WatchOptions("", listener.clock, listener.report, scope)
    try:
        async with watched_agents.watching(cluster, watch) as watched:
            await watched.unless_failed(_report_stages(watched, pending))
    except errors.ClusterError:
        return


async def _report_stages(watched: watched_agents.WatchedAgents, pending: _PendingRollouts) -> None:
    changes = watched.tracker.changed()
    await watched_agents.synced(watched)
    while True:
        for agent in watched.tracker.agents():
            pending.receive_agent(agent)
        await anext(changes)


class _PendingRollouts:
    """DaemonSets whose rollout is not done, each with the last message; `done` completes with the
    last rollout, or fails.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        listener: RolloutListener,
        follow_targets: Callable[[str], None],
    ) -> None:
        """`follow_targets` watches the target revisions of a namespace, for the first staged
        rollout in it.
        """
        self.staged = False  # whether stages are followed
        self.messages = dict.fromkeys(keys, "")
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._versions = dict.fromkeys(keys, 0)
        self._listener, self._follow_targets = listener, follow_targets
        self._targets: dict[Key, str] = {}
        self._halts: dict[tuple[str, str], Halt] = {}  # by namespace and target revision

    def summary(self) -> str:
        """The last message of each DaemonSet."""
        return "; ".join(f"{key}: {message}" for key, message in self.messages.items())

    async def read(self, cluster: ClusterReader, key: Key) -> None:
        """Reads a DaemonSet once: a watch may still have the object before the apply."""
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
            case _:  # without permission to watch them, the time limit ends the wait
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

    def receive_agent(self, agent: agents.Agent) -> None:
        """Handles the status of an agent: the stages of its rollout."""
        if agent.rollout is not None and agent.key in self.messages:
            self._listener.progress(agent.key, agents.nodes_done(agent))
            self._update(agent.key, health.staged_message(agent.rollout))

    def _end_if_halted(self, key: Key) -> None:
        halt = self._halts.get((key.namespace, self._targets.get(key, "")))
        if halt is not None and key in self.messages:
            why = f"the rollout is halted in stage {halt.stage}: {halt.message}"
            self._fail(errors.FailedRollout(f"{key}: {why}"))

    def _follow_target(self, key: Key, body: Body) -> None:
        """Watches the target revisions when a DaemonSet of their namespace has one."""
        target = daemonset_statements.target_name(annotations_of(body))
        followed = {key.namespace for key in self._targets}
        self._targets.pop(key, None)
        if target:
            self._targets[key] = target
            if key.namespace not in followed:
                self._follow_targets(key.namespace)
            self._end_if_halted(key)

    def _judge(self, body: Body) -> None:
        key, version = (
            key_of(body),
            version_number(str(body["metadata"].get("resourceVersion") or "")),
        )
        if key not in self.messages or version < self._versions[key]:
            return
        self._versions[key] = version
        status, staged = daemonset_statements.rollout_status(body), key in self._targets
        self._follow_target(key, body)
        if key not in self._targets:
            self._listener.progress(key, daemonsets.rollout_progress(body))
        if not staged or key not in self._targets:  # otherwise the message is that of its stages
            self._update(key, status.message)
        if status.done:
            del self.messages[key]
        if not self.messages and not self.done.done():
            self.done.set_result(None)

    def _update(self, key: Key, message: str) -> None:
        if message != self.messages[key]:
            self.messages[key] = message
            self._listener.report(f"{key}: {message}")

    def _fail(self, error: errors.GitopsError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def _not_found(key: Key) -> errors.NotFound:
    return errors.NotFound(f'daemonsets.apps "{key.name}" not found', 404, "NotFound")
