"""The status of all agents by lists, for an account that may not watch nodes, such as one with the
ClusterRole view.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from gitops_ds import errors
from gitops_ds.fleet import agents
from gitops_ds.fleet.agents import Agent
from gitops_ds.model.cluster import Cluster

SECONDS = 2.0  # between two reads


async def polled(
    cluster: Cluster, state_namespace: str, clock: Callable[[], float], say: Callable[[str], None]
) -> AsyncIterator[tuple[Agent, ...]]:
    """The agents, read every few seconds. `say` receives each message once.

    Raises ClusterError for a permanent error.
    """
    messages = set[str]()

    def once(message: str) -> None:
        if message not in messages:
            messages.add(message)
            say(message)

    while True:
        try:
            yield await agents.list_agents(cluster, state_namespace, clock(), once)
        except errors.ClusterError as error:
            if not error.retryable:
                raise
            once(f"{error}; retrying")
        await asyncio.sleep(SECONDS)
