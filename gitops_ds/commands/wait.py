"""Waits for one DaemonSet on watches, until every eligible node runs what is wanted, or it has
failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gitops_ds import errors
from gitops_ds.controller.controller import Controller, Powers
from gitops_ds.daemonset import competing_controller
from gitops_ds.deployer import source_status_store, state_store
from gitops_ds.fleet import agents
from gitops_ds.fleet.agents import Agent
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.decision import HealthState
from gitops_ds.model.events.base import Record, WatchFailed
from gitops_ds.model.objects import DAEMONSET, CommitId, Key, short

T = TypeVar("T")
# Errors of a list or a watch that only a person can mend.
_LASTING = (
    errors.Forbidden,
    errors.Unauthorized,
    errors.NotFound,
    errors.BadRequest,
    errors.Invalid,
)
ASK_SECONDS = 2.0  # between two looks at the deployer's state, while it has not come to the commit


@dataclass(frozen=True, slots=True)
class Awaited:
    """Which DaemonSet (`ds/NAME`), at which commit (its id or how that begins; empty: whatever is
    applied), for how many seconds.

    `includes` tells whether a commit has the awaited one before it, where Git is at hand. `clock`
    gives seconds since 1970.
    """

    name: str
    namespace: str = ""
    commit: str = ""
    seconds: float = 600.0
    includes: Callable[[CommitId], Awaitable[bool]] | None = None
    clock: Callable[[], float] = time.time


async def attend(
    cluster: Cluster, state_namespace: str, awaited: Awaited, say: Callable[[str], None]
) -> Agent:
    """The agent when it is as wanted. Each news is said once.

    Raises RolloutFailed when its template fails, TimedOut with what is missing, NotFound where
    there is no such DaemonSet and no commit is waited for that could bring it, and ClusterError at
    once for what can't be read without a person's help.
    """
    told = ""

    def tell(news: str) -> None:
        nonlocal told
        if news != told:
            told = news
            say(news)

    await cluster.version()  # an API server that is not there is an error at once
    try:
        async with (
            asyncio.timeout(awaited.seconds),
            watching(cluster, awaited.clock, tell) as watched,
        ):
            return await watched.unless_failed(
                _attend(cluster, state_namespace, awaited, (watched, tell))
            )
    except TimeoutError:
        raise errors.TimedOut(
            f"not done after {awaited.seconds:g} seconds: {told or 'the cluster was not read'}"
        ) from None


@dataclass(frozen=True, slots=True)
class WatchedAgents:
    """How all agents stand, kept current by watches; `failure` gets the error that ends them."""

    standings: StatusTracker
    controller: Controller
    failure: asyncio.Future[None]

    async def unless_failed(self, work: Awaitable[T]) -> T:
        """The result of the work, or the error of the watches as soon as they have one."""
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
    """Watches while the context is open. `say` gets the errors that pass by themselves."""
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(told: Record) -> None:
        if isinstance(told, WatchFailed) and not failure.done():
            if isinstance(told.error, _LASTING):
                failure.set_exception(told.error)
            else:
                say(f"{told.resource.plural}: {told.error}; tried again")

    def over(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not failure.done() and (error := task.exception()) is not None:
            failure.set_exception(error)

    controller = Controller(cluster, Powers.PACE, hear, clock=clock, chance=random.random)
    standings = StatusTracker(controller, dict, clock)
    tasks = [asyncio.create_task(controller.run()), asyncio.create_task(standings.run())]
    for task in tasks:
        task.add_done_callback(over)
    try:
        yield WatchedAgents(standings, controller, failure)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        failure.cancel()


async def looked(watched: WatchedAgents) -> None:
    """Returns when every agent was looked at once."""
    changes = watched.standings.changed()
    await watched.controller.synced.wait()
    while len(watched.standings.agents()) < sum(
        key.name != competing_controller.PROBE for key in watched.controller.keys
    ):
        await anext(changes)


DESCRIBED = 5.0  # seconds for which what the owner remembers is not read again


async def follow(
    cluster: Cluster, state_namespace: str, wanted: Awaited, show: Callable[[Agent | str], None]
) -> None:
    """Shows the agent, and again after each change, until it is cancelled; errors that pass by
    themselves are shown as text.

    Raises NotFound where there is no such DaemonSet, and ClusterError for what can't be read
    without a person's help.
    """
    await cluster.version()
    async with watching(cluster, wanted.clock, show) as watched:
        await watched.unless_failed(_follow(cluster, state_namespace, wanted, (watched, show)))


async def _follow(
    cluster: Cluster,
    state_namespace: str,
    wanted: Awaited,
    heard: tuple[WatchedAgents, Callable[[Agent | str], None]],
) -> None:
    watched, show = heard
    loop, read_at, known = asyncio.get_running_loop(), -math.inf, None
    changes = watched.standings.changed()
    await looked(watched)
    while True:
        agent = agents.find(watched.standings.agents(), wanted.name, wanted.namespace)
        if known is None or loop.time() - read_at >= DESCRIBED:
            with contextlib.suppress(errors.ClusterUnreachable, errors.ServerFault):
                known, read_at = (
                    await agents.described(cluster, state_namespace, agent),
                    loop.time(),
                )
        show(replace(agent, state=known.state, source=known.source) if known else agent)
        # a status that only its service writes shows with the next look
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(source_status_store.HEARTBEAT / 10):
                while agent.key not in await anext(changes):
                    pass


async def _attend(
    cluster: Cluster,
    state_namespace: str,
    awaited: Awaited,
    heard: tuple[WatchedAgents, Callable[[str], None]],
) -> Agent:
    watched, tell = heard
    standings, generation, includes = watched.standings, 0, Includes(awaited.includes)
    await looked(watched)
    while awaited.commit:
        try:
            missing = await _missing(cluster, state_namespace, (awaited, includes), standings)
            if not missing:
                # The watch may still show the object as it was before the commit.
                generation = await _generation(
                    cluster, agents.find(standings.agents(), awaited.name, awaited.namespace).key
                )
                break
            tell(missing)
        except errors.GitopsError as error:
            if not error.retryable:
                raise
            tell(f"{error}; tried again")
        await asyncio.sleep(ASK_SECONDS)
    return await _rolled_out(standings, awaited, tell, generation)


async def _generation(cluster: Cluster, key: Key) -> int:
    """The generation that is to be rolled out, as the API server has it now."""
    return int(
        (await cluster.get(DAEMONSET, key.namespace, key.name))["metadata"].get("generation") or 0
    )


class Includes:
    """Answers of Git, each asked for once: whether a commit has the awaited one before it."""

    def __init__(self, ask: Callable[[CommitId], Awaitable[bool]] | None) -> None:
        """Nothing is known yet."""
        self._ask, self._known = ask, dict[CommitId, bool]()

    async def has(self, commit: CommitId) -> bool:
        """False where no Git is at hand."""
        if self._ask is None:
            return False
        if commit not in self._known:
            self._known[commit] = await self._ask(commit)
        return self._known[commit]


async def _missing(
    cluster: Cluster,
    state_namespace: str,
    wanted: tuple[Awaited, Includes],
    standings: StatusTracker,
) -> str:
    """What stands between the DaemonSet and the commit; empty when the commit, or one that has it
    before it, was applied.
    """
    awaited, includes = wanted
    try:
        agent = agents.find(standings.agents(), awaited.name, awaited.namespace)
    except errors.NotFound as error:
        return str(error)
    owner, carries = (
        agents.owner(agent.seen),
        agent.seen.daemonset.annotations.get(names.COMMIT, ""),
    )
    known = await state_store.load(cluster, state_namespace, owner) if owner else None
    applied = known.last_good if known else None
    if carries.startswith(awaited.commit) or (applied and applied.startswith(awaited.commit)):
        return ""
    if applied and await includes.has(applied):
        return ""
    return (
        f"{agent.key} is at commit {short(applied or carries) or 'none'}, and "
        f"{short(awaited.commit)} is not applied yet"
    )


async def _rolled_out(
    standings: StatusTracker, awaited: Awaited, tell: Callable[[str], None], generation: int
) -> Agent:
    """The agent when `generation` of its DaemonSet, or a later one, is rolled out."""
    changes = standings.changed()
    while True:
        agent = agents.find(standings.agents(), awaited.name, awaited.namespace)
        if agent.seen.daemonset.generation < generation:
            await anext(changes)
            continue
        tell(f"{agent.health.state}: {agent.health.message}")
        if agent.health.state is HealthState.FAILED:
            raise errors.FailedRollout(f"{agent.key}: {agent.health.message}")
        # Under OnDelete an agent is healthy with old pods; whoever names a commit waits for the
        # last of them.
        updated = agent.counts.updated >= agent.counts.desired or not awaited.commit
        if agent.health.state is HealthState.HEALTHY and updated:
            return agent
        await anext(changes)
