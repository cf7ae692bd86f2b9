"""The update strategy outside of rollouts (`atRest`)."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.model import names
from gitops_ds.model.decision import Powers
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import NODES, POLICY, Scene, both

play = rollout_scene.play

REST = f"{POLICY}atRest: RollingUpdate\n"


async def strategy(scene: Scene) -> str:
    return str((await scene.daemonset())["spec"]["updateStrategy"]["type"])


@pytest.mark.sampled
@both
@pytest.mark.play(policy=REST)
async def test_the_strategy_of_git_is_back_after_the_rollout_and_restarts_no_pod(
    scene: Scene, /, powers: Powers
) -> None:
    assert await strategy(scene) == "RollingUpdate"
    scene.push("2")
    await asyncio.sleep(60)
    assert await strategy(scene) == "OnDelete"
    assert len(scene.on("2")) == 2
    await scene.until(lambda: len(scene.on("2")) == NODES)
    pods = {pod.uid for _, pod in scene.pods().values()}
    await asyncio.sleep(300)
    daemonset = await scene.daemonset()
    assert daemonset["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert names.TARGET not in daemonset["metadata"]["annotations"]
    assert await scene.tag() == "2"
    assert daemonset["status"]["updatedNumberScheduled"] == NODES
    await asyncio.sleep(3600)
    assert pods == {pod.uid for _, pod in scene.pods().values()}


@pytest.mark.sampled
@both
@pytest.mark.play(policy=REST)
async def test_a_revert_touches_the_touched_nodes_only(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await asyncio.sleep(60)
    untouched = {pod.uid for tag, pod in scene.pods().values() if tag == "1"}
    assert len(untouched) == NODES - 2
    scene.push("1")
    await scene.until(lambda: len(scene.on("1")) == NODES)
    await asyncio.sleep(600)
    assert await strategy(scene) == "RollingUpdate"
    assert untouched < {pod.uid for _, pod in scene.pods().values()}


async def test_the_default_is_on_delete(scene: Scene, /) -> None:
    assert await strategy(scene) == "OnDelete"
