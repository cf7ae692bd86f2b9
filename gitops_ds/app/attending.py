"""Waits for one DaemonSet on watches, until every eligible node runs what is wanted, or it has failed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gitops_ds import errors
from gitops_ds.controller import fleet, state
from gitops_ds.controller.fleet import Agent
from gitops_ds.controller.loop import Controller, Powers
from gitops_ds.controller.standing import Standings
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.decision import HealthState
from gitops_ds.model.objects import CommitId, short

ASK_SECONDS = 2.0  # between two looks at the deployer's state, while it has not come to the commit


@dataclass(frozen=True, slots=True)
class Awaited:
    """Which DaemonSet (`ds/NAME`), at which commit (its id or how that begins; empty: whatever is applied), for how many seconds.

    `includes` tells whether a commit has the awaited one before it, where Git is at hand. `clock` gives seconds since 1970.
    """

    name: str
    namespace: str = ""
    commit: str = ""
    seconds: float = 600.0
    includes: Callable[[CommitId], Awaitable[bool]] | None = None
    clock: Callable[[], float] = time.time


async def attend(cluster: Cluster, state_namespace: str, awaited: Awaited, say: Callable[[str], None]) -> Agent:
    """The agent when it is as wanted. Each news is said once.

    Raises RolloutFailed when its template fails, TimedOut with what is missing, NotFound where there is no such DaemonSet and no
    commit is waited for that could bring it.
    """
    told = ""

    def tell(news: str) -> None:
        nonlocal told
        if news != told:
            told = news
            say(news)

    try:
        async with asyncio.timeout(awaited.seconds), _watching(cluster, awaited.clock) as standings:
            while awaited.commit and (missing := await _missing(cluster, state_namespace, awaited, standings)):
                tell(missing)
                await asyncio.sleep(ASK_SECONDS)
            return await _rolled_out(standings, awaited, tell)
    except TimeoutError:
        raise errors.TimedOut(f"not done after {awaited.seconds:g} seconds: {told or 'the cluster was not read'}") from None


@asynccontextmanager
async def _watching(cluster: Cluster, clock: Callable[[], float]) -> AsyncIterator[Standings]:
    """How all agents stand, from the moment when each was looked at."""
    controller = Controller(cluster, Powers.PACE, lambda _: None, clock=clock, chance=random.random)
    standings = Standings(controller, dict, clock)
    changes = standings.changed()
    tasks = [asyncio.create_task(controller.run()), asyncio.create_task(standings.run())]
    try:
        await controller.synced.wait()
        while len(standings.agents()) < len(controller.keys):
            await anext(changes)
        yield standings
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _missing(cluster: Cluster, state_namespace: str, awaited: Awaited, standings: Standings) -> str:
    """What stands between the DaemonSet and the commit; empty when the commit, or one that has it before it, was applied."""
    try:
        agent = fleet.find(standings.agents(), awaited.name, awaited.namespace)
    except errors.NotFound as error:
        return str(error)
    owner, carries = fleet.owner(agent.seen), agent.seen.daemonset.annotations.get(names.COMMIT, "")
    known = await state.load(cluster, state_namespace, owner) if owner else None
    applied = known.last_good if known else None
    if carries.startswith(awaited.commit) or (applied and applied.startswith(awaited.commit)):
        return ""
    if applied and awaited.includes and await awaited.includes(applied):
        return ""
    return f"{agent.key} is at commit {short(applied or carries) or 'none'}, and {short(awaited.commit)} is not applied yet"


async def _rolled_out(standings: Standings, awaited: Awaited, tell: Callable[[str], None]) -> Agent:
    changes = standings.changed()
    while True:
        agent = fleet.find(standings.agents(), awaited.name, awaited.namespace)
        tell(f"{agent.health.state}: {agent.health.message}")
        if agent.health.state is HealthState.FAILED:
            raise errors.RolloutFailed(f"{agent.key}: {agent.health.message}")
        # Under OnDelete an agent is healthy with old pods; whoever names a commit waits for the last of them.
        updated = agent.counts.updated >= agent.counts.desired or not awaited.commit
        if agent.health.state is HealthState.HEALTHY and updated:
            return agent
        await anext(changes)
