"""All agents of a cluster, again after each change (`get --watch`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

import msgspec

from gitops_ds import errors
from gitops_ds.commands import polled_agents, watched_agents
from gitops_ds.deployer import source_status_store
from gitops_ds.fleet import agents as fleet_agents
from gitops_ds.fleet.agents import Agent, Owners
from gitops_ds.model.cluster import Cluster


class WatchOptions(msgspec.Struct, frozen=True):
    """The namespace of the deployer's state, and the clock, in seconds since 1970.

    `say` receives errors that are retried.
    """

    state_namespace: str
    clock: Callable[[], float]
    say: Callable[[str], None]


async def follow(
    cluster: Cluster, options: WatchOptions, show: Callable[[tuple[Agent, ...]], None]
) -> None:
    """Shows all agents at the start and after each change (without permission to watch nodes, after
    each read), until cancelled. Raises ClusterError for a permanent error.
    """
    await cluster.version()
    try:
        async with watched_agents.watching(cluster, options.clock, options.say) as watched:
            await watched.unless_failed(_follow(cluster, options, watched, show))
    except errors.Forbidden:
        async for agents in polled_agents.polled(
            cluster, options.state_namespace, options.clock, options.say
        ):
            show(agents)


async def _follow(
    cluster: Cluster,
    options: WatchOptions,
    watched: watched_agents.WatchedAgents,
    show: Callable[[tuple[Agent, ...]], None],
) -> None:
    loop, read_at, owners = asyncio.get_running_loop(), -math.inf, Owners({}, {})
    changes = watched.tracker.changed()
    await watched_agents.synced(watched)
    while True:
        agents = watched.tracker.agents()
        if loop.time() - read_at >= watched_agents.STATE_SECONDS:
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
