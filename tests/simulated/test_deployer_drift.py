"""Drift as the loop of the service sees it: by its watches, at an interval, and when a hold ends."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.controller.deploy import Asked
from gitops_ds.model import deployment, names
from gitops_ds.model.change import Drift
from gitops_ds.model.cluster import PatchType
from gitops_ds.model.objects import CONFIG_MAP, DAEMONSET, Resource
from tests.simulated.test_deployer_loop import AGENT, Scene, play

IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "example.com/agent:9"}]}}}}


async def begun(scene: Scene) -> None:
    scene.history.push(AGENT.format(tag=1))
    await scene.settle()
    assert await scene.image() == "1"


async def changed(scene: Scene) -> None:
    await scene.cluster.client("kubectl-set").patch(DAEMONSET, "default", "agent", IMAGE, type=PatchType.STRATEGIC)


def test_the_watch_tells_of_it_and_two_seconds_later_it_is_corrected() -> None:
    async def script(scene: Scene) -> None:
        await begun(scene)
        await changed(scene)
        await asyncio.sleep(2)  # nobody asked for a pass
        assert await scene.image() == "1"
        assert [type(one) for one in scene.told(deployment.DriftFact)] == [deployment.DriftDetected, deployment.DriftCorrected]

    play(script)


@pytest.mark.parametrize("which", [DAEMONSET, CONFIG_MAP])
def test_our_label_is_put_back_when_somebody_takes_it(which: Resource) -> None:
    async def script(scene: Scene) -> None:
        await begun(scene)
        nothing = {"metadata": {"labels": {names.OWNER_LABEL: None}}}
        await scene.cluster.client("kubectl-label").patch(which, "default", "agent", nothing, type=PatchType.MERGE)
        await asyncio.sleep(2)
        assert (await scene.cluster.get(which, "default", "agent"))["metadata"]["labels"][names.OWNER_LABEL] == "test"

    play(script)


def test_what_is_held_is_corrected_when_its_time_is_over_though_nothing_moves() -> None:
    async def script(scene: Scene) -> None:
        await begun(scene)
        await changed(scene)
        for _ in range(58):
            await scene.settle()
        assert await scene.image() == "9"
        for _ in range(4):
            await scene.settle()
        assert await scene.image() == "1"
        facts = [type(one).__name__ for one in scene.told(deployment.DriftFact)]
        assert facts == ["DriftDetected", "DriftHeld", "DriftCorrected"]

    play(script, Asked(patience=0.0, drift=Drift.HOLD, hold_for=3600.0))


def test_a_quiet_cluster_is_compared_at_the_interval_and_not_in_between() -> None:
    async def script(scene: Scene) -> None:
        await begun(scene)
        await scene.settle()
        before = len(scene.told(deployment.PassEnded))
        for _ in range(7):
            await scene.settle()
        assert len(scene.told(deployment.PassEnded)) == before
        for _ in range(12):
            await scene.settle()
        assert before + 1 <= len(scene.told(deployment.PassEnded)) <= before + 2
        scene.client.count.reset()
        for _ in range(12):
            await scene.settle()
        assert scene.client.count.writes == 0

    play(script)
