"""A wall clock that jumps: comparisons, waits and writes continue unaffected, because waits do not
use that clock.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from gitops_ds import simulator
from gitops_ds.deployer import loop as deployer_loop
from gitops_ds.deployer import revision_selector
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.model.cluster import PatchType
from gitops_ds.model.duration import Duration
from gitops_ds.model.events import deployer
from gitops_ds.model.events.base import Event
from gitops_ds.model.objects import DAEMONSET
from gitops_ds.model.values import replace
from gitops_ds.pipeline import prepare
from gitops_ds.plan.options import ApplyOptions
from gitops_ds.service.git import git_schedule
from gitops_ds.settings.base import Ratio
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.simulator import NodeSpec
from tests.deployer.test_loop import AGENT, History, Scene

JUMPS = (24.0, -24.0, 1.0, -1.0, 90_000.0, -90_000.0)  # hours


async def test_drift_is_corrected_and_commits_are_applied_independently_of_the_clock() -> None:
    async with simulator.SimulatedCluster() as cluster:
        cluster.add_nodes([NodeSpec("node-1")])
        history, client, events, skew = History(), cluster.client(), list[Event](), [0.0]
        history.push(AGENT.format(tag="0"))
        timing = deployer_loop.LoopTiming(
            5.0, lambda: cluster.server.now() + skew[0], random.Random(1).random
        )
        source = revision_selector.RevisionSource(
            history.tip,
            history.snapshot,
            history.movement,
            revision_selector.prepare_directly(prepare.prepare),
        )
        options = ApplyOptions(patience=0.0)
        loop = deployer_loop.Loop(
            source,
            DeployTarget(client, "gitops-ds", "test", "memory"),
            options,
            events.append,
            timing,
        )
        running = asyncio.create_task(loop.run())
        scene = Scene(cluster, client, history, loop, events)
        for tag, hours in enumerate(JUMPS, 1):
            skew[0] = hours * 3600
            history.push(AGENT.format(tag=tag))
            await scene.settle()
            assert await scene.image() == str(tag)
            containers = [{"name": "agent", "image": "example.com/agent:by-hand"}]
            patch = {"spec": {"template": {"spec": {"containers": containers}}}}
            await cluster.patch(DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC)
            client.count.reset()
            await scene.settle()
            assert await scene.image() == str(tag)
            assert client.count.total < 60  # a minute
        loop.stop()
        await running


@pytest.mark.sampled
@pytest.mark.parametrize("hours", JUMPS)
async def test_a_cluster_in_which_nothing_moves_is_compared_as_often_as_before(
    hours: float,
) -> None:
    async with simulator.SimulatedCluster() as cluster:
        cluster.add_nodes([NodeSpec("node-1")])
        history, client, events, skew = History(), cluster.client(), list[Event](), [0.0]
        history.push(AGENT.format(tag="1"))
        timing = deployer_loop.LoopTiming(
            5.0, lambda: cluster.server.now() + skew[0], random.Random(1).random
        )
        source = revision_selector.RevisionSource(
            history.tip,
            history.snapshot,
            history.movement,
            revision_selector.prepare_directly(prepare.prepare),
        )
        options = replace(ApplyOptions(patience=0.0), compare_every=300.0)
        loop = deployer_loop.Loop(
            source,
            DeployTarget(client, "gitops-ds", "test", "memory"),
            options,
            events.append,
            timing,
        )
        running = asyncio.create_task(loop.run())
        scene = Scene(cluster, client, history, loop, events)
        await scene.settle()
        skew[0] = hours * 3600
        events.clear()
        for _ in range(20):
            await scene.settle()
        compared = [event for event in events if isinstance(event, deployer.Reconciled)]
        assert 3 <= len(compared) <= 5
        loop.stop()
        await running


async def test_a_schedule_ticks_at_once_when_the_clock_jumped_and_not_otherwise() -> None:
    clock, skew, ticks = asyncio.get_running_loop().time, [0.0], list[float]()
    trigger = git_schedule.trigger_of(
        RepositorySettings(
            "https://git.example.com/fleet", interval=Duration(86_400), jitter=Ratio(0)
        )
    )
    schedule = git_schedule.Schedule(
        trigger, lambda: ticks.append(clock()), lambda: clock() + skew[0]
    )
    await asyncio.sleep(600)
    assert len(ticks) == 1
    for number, hours in enumerate(JUMPS, 2):
        skew[0] = hours * 3600
        await asyncio.sleep(600)
        assert len(ticks) == number
    schedule.shutdown()
    skew[0] = 0.0
    await asyncio.sleep(600)
    assert len(ticks) == 1 + len(JUMPS)
