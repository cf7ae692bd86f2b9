"""The numbers of nodes of a rollout, as metrics show them."""

from __future__ import annotations

import asyncio

from gitops_ds.fleet import staged_rollouts
from gitops_ds.model.health import RolloutCounts
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import NODES, Scene

play = rollout_scene.play


async def test_they_are_those_of_the_decision(scene: Scene, /) -> None:
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
