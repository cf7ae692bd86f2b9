"""A staged rollout from commit to pod on the simulated cluster: deployer, rollouts, and a DaemonSet
controller.
"""

from __future__ import annotations

import asyncio

from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import StagePassed
from gitops_ds.core.health import RolloutCounts
from gitops_ds.core.objects import CONTROLLER_REVISION
from gitops_ds.deploy import state_store
from gitops_ds.rollouts.state import keys
from gitops_ds.rollouts.views import staged_rollouts
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, Scene, both

play = rollout_scene.play


@both
async def test_a_commit_rolls_out_in_stages_and_the_template_follows(
    scene: Scene, /, powers: Powers
) -> None:
    uids = {pod.uid for _, pod in scene.pods().values()}
    scene.push("2")
    await asyncio.sleep(100)
    assert len(scene.on("2")) == 2
    assert await scene.tag() == "1"
    daemonset = await scene.daemonset()
    assert daemonset["spec"]["updateStrategy"]["type"] == "OnDelete"
    assert keys.TARGET in daemonset["metadata"]["annotations"]
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(120)
    assert await scene.tag() == "2"
    daemonset = await scene.daemonset()
    assert keys.TARGET not in daemonset["metadata"]["annotations"]
    assert daemonset["status"]["updatedNumberScheduled"] == NODES
    assert not uids & {pod.uid for _, pod in scene.pods().values()}
    stored = (await scene.cluster.list(CONTROLLER_REVISION)).items
    assert sorted(one["revision"] for one in stored) == [1, 2]
    causes = [one["metadata"]["annotations"].get(names.CHANGE_CAUSE) for one in stored]
    assert causes == ["A change"] * 2
    stages = [event.stage for event in scene.events if isinstance(event, StagePassed)]
    assert stages == ["canary", "rest"]
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert state.last_good == scene.history.id(1)
    first = {pod.uid for _, pod in scene.pods().values()}
    await asyncio.sleep(3600)
    assert first == {pod.uid for _, pod in scene.pods().values()}


async def test_the_numbers_of_nodes_in_metrics_are_those_of_the_decision(scene: Scene, /) -> None:
    assert scene.observed() is None
    scene.push("2")
    await asyncio.sleep(60)
    rollout = scene.observed()
    assert rollout is not None
    assert staged_rollouts.counts(rollout) == RolloutCounts(2, 3, 0, 0, NODES, halted=False)
    await asyncio.sleep(120)
    rollout = scene.observed()
    assert rollout is not None
    assert staged_rollouts.counts(rollout).proved >= 2
