"""The commands that watch one agent request the pods that decide about it, and show what a list of
all pods shows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gitops_ds.cli.wait import by_health, watched_agents
from gitops_ds.cli.wait.watched_agents import WatchOptions
from gitops_ds.core import errors
from gitops_ds.core.cluster import Selection
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import DAEMONSET, NODE
from gitops_ds.status import agent_lists
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agent_lists import AgentScope
from gitops_ds.status.agents import Agent
from gitops_ds.testing.simulator import virtual_time
from tests.cli.test_list_options import in_background
from tests.commands.test_wait import blind
from tests.simulator.setup import set_up
from tests.status.test_agent_lists import Recorded, many, named

Command = Callable[[Any, str, str], Awaitable[Agent]]


async def waited(cluster: Any, name: str, namespace: str) -> Agent:
    clock = virtual_time.clock()
    options = by_health.WaitOptions(name, namespace, "", 300.0, clock=clock)
    return await by_health.wait_for_rollout(cluster, "gitops-ds", options, lambda _: None)


async def followed(cluster: Any, name: str, namespace: str) -> Agent:
    """The first that `get NAME -w` and `status NAME -w` show."""
    scope = AgentScope((name,), namespace)
    async with shown(cluster, scope, virtual_time.clock()) as fleets:
        while not fleets:
            await asyncio.sleep(1)
    return fleet_agents.find_agent(fleets[0], name, namespace)


@contextlib.asynccontextmanager
async def shown(
    cluster: Any, scope: AgentScope, clock: Callable[[], float]
) -> AsyncIterator[list[tuple[Agent, ...]]]:
    """What a command with `-w` shows, while the context is open."""
    fleets = list[tuple[Agent, ...]]()
    watch = WatchOptions("gitops-ds", clock, lambda _: None, scope)
    async with in_background(watched_agents.follow(cluster, watch, fleets.append)):
        yield fleets


@pytest.mark.parametrize("command", [waited, followed])
async def test_a_watched_agent_is_that_of_a_list_of_all_from_its_own_pods(command: Command) -> None:
    async with set_up(3) as there:
        await many(there)
        every = await agent_lists.list_agents(there.people, "gitops-ds", virtual_time.clock()())
        for whole in every:
            if whole.health.state is not HealthState.HEALTHY:
                continue
            client = Recorded(there.people)
            agent = await command(client, whole.key.name, whole.key.namespace)
            assert (agent.key, agent.health) == (whole.key, whole.health)
            assert agent.seen.pods == whole.seen.pods
            assert client.pods
            assert all(which.labels for which in client.pods)


async def test_a_name_without_an_agent_has_the_nearest_one() -> None:
    async with set_up(3) as there:
        await many(there)
        with pytest.raises(errors.NoMatch, match='did you mean "agent"'):
            await waited(there.people, "agnt", "default")


async def test_a_daemonset_that_is_created_again_with_another_selector_is_followed() -> None:
    async with set_up(3) as there:
        await many(there)
        client, scope = Recorded(there.people), AgentScope(("many",), "default")
        async with shown(client, scope, virtual_time.clock()) as fleets:
            await asyncio.sleep(60)
            await there.people.delete(DAEMONSET, "default", "many")
            await asyncio.sleep(60)
            labels = {"app": "other"}
            body = named("many", "default", {"matchLabels": labels}, labels)
            await there.people.create(DAEMONSET, body)
            await asyncio.sleep(120)
        agent = fleet_agents.find_agent(fleets[-1], "many", "default")
        assert agent.health.state is HealthState.HEALTHY
        assert len(agent.seen.pods) == 3
        assert client.pods[-1] == Selection("default", "app=other", brief=True)


@pytest.mark.parametrize("command", [waited, followed])
async def test_without_a_right_to_nodes_the_reads_have_the_pods_of_the_agent(
    command: Command,
) -> None:
    async with set_up(3) as there:
        await many(there)
        client = Recorded(blind(there, NODE))
        agent = await command(client, "many", "default")
        assert agent.health.state is HealthState.HEALTHY
        assert client.pods
        assert all(which.labels for which in client.pods)
