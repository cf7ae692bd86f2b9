"""Waits for staged rollouts end at once where the rollout is halted."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds import errors
from gitops_ds.commands import rollout_waiter, wait
from gitops_ds.commands.rollout_waiter import RolloutListener
from gitops_ds.commands.wait import WaitOptions
from gitops_ds.model.objects import Key
from gitops_ds.model.rollouts.rollout_progress import RolloutProgress
from gitops_ds.simulator import PodFault, Trouble
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import Scene
from tests.deployer.test_rollout_faults import ends, spoil

play = rollout_scene.play

AGENT = Key("apps", "DaemonSet", "default", "agent")


async def test_an_apply_that_waits_ends_when_the_rollout_is_halted(scene: Scene, /) -> None:
    messages: list[str] = []
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.FailedRollout, match="halted in stage canary: ErrImagePull"):
        await rollout_waiter.wait_for_rollouts(
            scene.cluster, [AGENT], 3600, RolloutListener(messages.append)
        )
    assert asyncio.get_running_loop().time() - began < 300
    assert "is in progress" in messages[0]
    for run in range(2):  # also a wait that begins afterwards
        with pytest.raises(errors.FailedRollout, match="canary"):
            await rollout_waiter.wait_for_rollouts(
                scene.cluster, [AGENT], 60 + run, RolloutListener(messages.append)
            )


async def test_an_apply_that_waits_ends_with_the_rollout(scene: Scene, /) -> None:
    messages: list[str] = []
    shown: list[RolloutProgress] = []
    scene.push("2")
    await asyncio.sleep(1)
    listener = RolloutListener(
        messages.append, lambda _, now: shown.append(now), scene.cluster.server.now
    )
    await rollout_waiter.wait_for_rollouts(scene.cluster, [AGENT], 3600, listener)
    await ends(scene, "2")
    assert any("canary 2/2, rest 0/8" in one for one in messages)
    assert sum("is in progress" in one for one in messages) == 1
    staged = [one for one in shown if 0 < one.done < one.nodes]
    assert RolloutProgress(2, 10) in staged
    assert all(one.left for one in staged)
    assert [one.done for one in staged] == sorted(one.done for one in staged)
    assert shown[-1] == RolloutProgress(10, 10)


async def test_a_wait_for_a_daemonset_ends_when_its_rollout_is_halted(scene: Scene, /) -> None:
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await asyncio.sleep(1)
    options = WaitOptions("ds/agent", "default", seconds=3600, clock=scene.cluster.server.now)
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.FailedRollout, match="halted in stage canary: ErrImagePull"):
        await wait.wait_for_rollout(scene.cluster, "gitops-ds", options, lambda _: None)
    assert asyncio.get_running_loop().time() - began < 300
