"""Rollouts that a person stops: a suspended agent, and a commit on hold."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.commands import service_requests
from gitops_ds.model import names
from gitops_ds.model.decision import Powers
from gitops_ds.model.objects import CONFIG_MAP, DAEMONSET
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import NODES, Scene, both
from tests.deployer.test_requests import NAME
from tests.deployer.test_rollout_faults import ends

play = rollout_scene.play


async def suspend(scene: Scene, value: str | None) -> None:
    """As `gitops-ds suspend` and `resume` do."""
    patch = {"metadata": {"annotations": {names.SUSPEND: value}}}
    await scene.cluster.client("person").patch(DAEMONSET, "default", "agent", patch)


async def hold(scene: Scene, commits: str | None) -> None:
    """As `gitops-ds hold` and `release` do."""
    patch = {"metadata": {"annotations": {f"{names.DOMAIN}/hold": commits}}}
    await scene.cluster.client("person").patch(CONFIG_MAP, "gitops-ds", NAME, patch)


@pytest.mark.sampled
@both
async def test_a_suspended_agent_takes_no_further_node_until_it_is_resumed(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await asyncio.sleep(60)
    canary = scene.on("2")
    assert len(canary) == 2
    await suspend(scene, "true")
    await asyncio.sleep(3600)
    assert scene.on("2") == canary
    assert len(scene.on("1")) == NODES - 2
    assert scene.decision.hold is not None
    assert scene.decision.hold.reason == "suspended"
    await suspend(scene, None)
    await ends(scene, "2")


@pytest.mark.sampled
@both
async def test_the_rollout_of_a_commit_on_hold_takes_no_further_node_until_its_release(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await asyncio.sleep(60)
    commit = scene.history.id(1)
    canary = scene.on("2")
    assert len(canary) == 2
    await hold(scene, commit)
    now = scene.cluster.server.now()
    assert await service_requests.hold_rollouts(scene.cluster, "test", "f" * 40, now) == ()
    assert len(await service_requests.hold_rollouts(scene.cluster, "test", commit, now)) == 1
    await asyncio.sleep(3600)
    assert scene.on("2") == canary
    assert scene.decision.halt is None
    assert scene.decision.hold is not None
    reason = scene.decision.hold.reason
    assert reason == f"this template was put on hold, with commit {commit[:12]}"
    await hold(scene, None)
    assert len(await service_requests.release_rollouts(scene.cluster, "test", commit)) == 1
    await ends(scene, "2")
    assert names.HALTED not in (await scene.daemonset())["metadata"]["annotations"]
