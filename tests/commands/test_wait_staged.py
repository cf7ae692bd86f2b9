"""`wait` and the tracker of the service in a staged rollout on the simulated cluster."""

from __future__ import annotations

import pytest

from gitops_ds.cli.wait import by_health
from gitops_ds.core import errors
from gitops_ds.core.decision import Powers
from gitops_ds.core.health import HealthState
from gitops_ds.status.agents import Agent
from gitops_ds.testing.simulator import PodFault, Trouble
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, Scene, both, spoil

play = rollout_scene.play


async def waited(scene: Scene, messages: list[str], commit: str = "") -> Agent:
    """The agent at the end of a wait of at most ten hours."""
    clock = scene.cluster.server.now
    options = by_health.WaitOptions("agent", "default", commit, 36_000.0, clock=clock)
    return await by_health.wait_for_rollout(scene.cluster, "gitops-ds", options, messages.append)


@pytest.mark.sampled
@both
async def test_a_wait_ends_when_every_stage_is_passed(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2)
    messages: list[str] = []
    agent = await waited(scene, messages)
    assert len(scene.on("2")) == NODES
    assert agent.health.state is HealthState.HEALTHY
    assert agent.rollout is None or agent.rollout.complete
    assert any("canary 2/2, rest 0/8" in message for message in messages)


@pytest.mark.sampled
@both
async def test_a_wait_for_a_commit_ends_with_its_template(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    commit = scene.history.id(1)
    await waited(scene, [], commit)
    assert len(scene.on("2")) == NODES
    assert await scene.tag() == "2"


@pytest.mark.sampled
@both
async def test_a_wait_for_a_halted_rollout_fails_with_its_reason(
    scene: Scene, /, powers: Powers
) -> None:
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await scene.until(lambda: bool(scene.on("2")))
    with pytest.raises(errors.FailedRollout, match="halted in stage canary: ErrImagePull"):
        await waited(scene, [])
    assert len(scene.on("2")) <= 2
