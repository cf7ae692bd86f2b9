"""A rollout whose DaemonSet gets the template before the end, from commit to pod on the simulated
cluster.
"""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.model import names
from gitops_ds.model.decision import Powers
from gitops_ds.model.objects import CONTROLLER_REVISION
from gitops_ds.simulator import NodeSpec
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import NODES, Scene, both

play = rollout_scene.play

POLICY = """\
stages:
  - {name: canary, nodes: {count: 2}, soak: 1m}
  - {name: middle, nodes: {count: 4}, soak: 30s}
  - {name: rest, soak: 5m, pace: {start: 1, factor: 1}}
limits: {atRisk: {cluster: 30%}}
template: {commit: late}
onFailure: {revert: {how: none}}
"""


async def early(scene: Scene) -> None:
    """Waits until the DaemonSet has the second template."""
    for _ in range(240):
        if await scene.tag() == "2":
            return
        await asyncio.sleep(5)
    raise AssertionError(scene.decision)


@pytest.mark.sampled
@both
@pytest.mark.play(policy=POLICY)
async def test_the_template_is_written_early_and_the_nodes_left_keep_their_stages(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await early(scene)
    assert 5 < len(scene.on("2")) < NODES
    daemonset = await scene.daemonset()
    assert names.TARGET in daemonset["metadata"]["annotations"]
    scene.cluster.add_nodes([NodeSpec("new")])
    await asyncio.sleep(60)
    assert "new" in scene.on("2")
    assert len(scene.on("2")) <= NODES
    scene.kill()
    scene.start()
    await scene.until(lambda: len(scene.on("2")) == NODES + 1)
    await asyncio.sleep(600)
    daemonset = await scene.daemonset()
    assert names.TARGET not in daemonset["metadata"]["annotations"]
    assert daemonset["status"]["updatedNumberScheduled"] == NODES + 1
    stored = (await scene.cluster.list(CONTROLLER_REVISION)).items
    assert sorted(one["revision"] for one in stored) == [1, 2]


@pytest.mark.sampled
@both
@pytest.mark.play(policy=POLICY)
async def test_another_commit_puts_the_proven_template_back_first(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await early(scene)
    scene.push("3")
    await asyncio.sleep(30)
    assert await scene.tag() == "1"
    assert len(scene.on("3")) <= 2
    await scene.until(lambda: len(scene.on("3")) > NODES // 2)
    scene.push("2")  # owned by the DaemonSet, and never proved
    await asyncio.sleep(30)
    assert await scene.tag() == "1"
    assert len(scene.on("2")) < NODES
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(600)
    assert await scene.tag() == "2"
    daemonset = await scene.daemonset()
    assert names.TARGET not in daemonset["metadata"]["annotations"]
