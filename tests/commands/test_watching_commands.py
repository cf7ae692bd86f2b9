"""The commands that watch a rollout beside a service that has ended, on the simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gitops_ds.cli.wait import by_health, by_status, watched_agents
from gitops_ds.cli.wait.by_status import RolloutListener
from gitops_ds.cli.wait.watched_agents import WatchOptions
from gitops_ds.core import errors
from gitops_ds.core.cluster import BRIEF, ClusterReader
from gitops_ds.core.decision import Powers
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import DAEMONSET, Key
from gitops_ds.deploy import source_status_store
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agent_lists import AgentScope
from gitops_ds.status.agents import Agent
from tests.commands.test_watched_pods import shown
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import POLICY, Scene, both
from tests.deploy.test_loop import AGENT
from tests.status.test_agent_lists import Recorded

play = rollout_scene.play
KEY = Key(DAEMONSET.group, DAEMONSET.kind, "default", "agent")
Clock = Callable[[], float]
IDLE = POLICY.replace("name: canary,", "name: canary, nodesWhen: idle,")
Command = Callable[[ClusterReader, Clock, list[str]], Awaitable[object]]


def _wait(cluster: ClusterReader, clock: Clock, messages: list[str]) -> Awaitable[object]:
    options = by_health.WaitOptions("agent", "default", "", 36_000.0, clock=clock)
    return by_health.wait_for_rollout(cluster, "gitops-ds", options, messages.append)


def _apply_wait(cluster: ClusterReader, clock: Clock, messages: list[str]) -> Awaitable[object]:
    listener = RolloutListener(messages.append, clock=clock)
    return by_status.wait_for_rollouts(cluster, [KEY], None, listener)


def _get_watch(cluster: ClusterReader, clock: Clock, messages: list[str]) -> Awaitable[object]:
    options = WatchOptions("gitops-ds", clock, messages.append)
    return watched_agents.follow(cluster, options, lambda agents: messages.append(str(agents)))


def _status_watch(cluster: ClusterReader, clock: Clock, messages: list[str]) -> Awaitable[object]:
    options = WatchOptions("gitops-ds", clock, messages.append)

    def which(agents: tuple[Agent, ...]) -> tuple[Agent, ...]:
        return (fleet_agents.find_agent(agents, "agent", "default"),)

    return watched_agents.follow(cluster, options, lambda one: messages.append(str(one)), which)


@both
@pytest.mark.parametrize("command", [_wait, _apply_wait, _get_watch, _status_watch])
async def test_a_command_that_watches_a_rollout_never_continues_it(
    scene: Scene, /, powers: Powers, command: Command
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2)
    for process in scene.tasks[:2]:  # the service; another DaemonSet controller continues
        process.cancel()
    await asyncio.sleep(10)
    begun, messages = scene.pods(), list[str]()
    person = scene.cluster.client("person")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await command(person, scene.cluster.server.now, messages)
    assert person.count.writes == 0
    assert scene.pods() == begun
    assert any("rest" in message for message in messages), "the rollout is shown"


async def test_a_wait_names_the_missing_service_when_its_last_status_is_old(
    scene: Scene, /
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2)
    messages: list[str] = []
    options = by_health.WaitOptions("agent", "default", "", 30.0, clock=scene.cluster.server.now)
    with pytest.raises(errors.TimedOut) as beside:
        await by_health.wait_for_rollout(scene.cluster, "gitops-ds", options, messages.append)
    assert "no running service" not in "".join((str(beside.value), *messages))
    for process in scene.tasks[:2]:
        process.cancel()
    await asyncio.sleep(source_status_store.FRESH)
    with pytest.raises(errors.TimedOut, match="no running service follows memory, and only"):
        await by_health.wait_for_rollout(scene.cluster, "gitops-ds", options, messages.append)
    assert any(message.startswith("no running service") for message in messages)


async def test_all_pods_are_watched_while_a_rollout_waits_for_idle_nodes(scene: Scene, /) -> None:
    client = Recorded(scene.cluster.client("person"))
    async with shown(client, AgentScope(("agent",)), scene.cluster.server.now) as fleets:
        assert BRIEF not in client.pods
        scene.history.policy = IDLE
        scene.push("2")
        await scene.until(lambda: len(scene.on("2")) > 0)
        await asyncio.sleep(30)
        assert client.pods[-1] == BRIEF
        await scene.until(lambda: len(scene.on("2")) == rollout_scene.NODES)
        await asyncio.sleep(60)
    assert client.pods[-1].labels
    assert fleets[-1][0].health.state is HealthState.HEALTHY


async def test_all_pods_are_watched_as_soon_as_a_pod_of_the_rollout_has_no_place(
    scene: Scene, /
) -> None:
    client = Recorded(scene.cluster.client("person"))
    async with shown(client, AgentScope(("agent",)), scene.cluster.server.now) as fleets:
        large = 'agent:2", resources: {requests: {cpu: "100"}}}]'
        scene.history.push(AGENT.format(tag="2").replace('agent:2"}]', large))
        scene.request()
        await scene.until(lambda: len(scene.on("2")) > 0)
        await asyncio.sleep(60)
    assert fleets[-1][0].rollout is not None
    assert client.pods[0].labels
    assert client.pods[-1] == BRIEF
