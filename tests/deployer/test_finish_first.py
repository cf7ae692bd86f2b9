"""A newer commit that waits for the rollout in progress (`supersede: finish-first`)."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.model.decision import Powers
from gitops_ds.model.events.deployer import Reconciled
from gitops_ds.model.objects import CONTROLLER_REVISION
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.simulator import PodFault, Trouble
from tests.deployer.rollout_scene import NODES, POLICY, Scene, both, play
from tests.deployer.test_rollout_faults import ends, spoil

FIRST = f"{POLICY}supersede: finish-first\n"
EARLY = FIRST + "template: {commit: late}\n"


def skipped(scene: Scene) -> list[str]:
    """The messages of templates that wait."""
    return [
        one.message
        for event in scene.events
        if isinstance(event, Reconciled)
        for one in event.failed
        if one.reason is SkipReason.FINISH_FIRST
    ]


@pytest.mark.sampled
@both
@pytest.mark.parametrize("policy", [FIRST, EARLY], ids=["at-end", "late"])
def test_the_next_commit_begins_when_the_rollout_is_complete(powers: Powers, policy: str) -> None:
    async def script(scene: Scene) -> None:
        scene.push("2")
        await asyncio.sleep(60)
        scene.push("3")
        await scene.until(lambda: len(scene.on("2")) == NODES)
        assert not scene.on("3")
        assert skipped(scene)[0] == (
            "the template of DaemonSet default/agent waits for the end of the rollout of commit "
            f"{scene.history.id(1)[:12]} (supersede: finish-first)"
        )
        assert len(skipped(scene)) < 30
        await ends(scene, "3")
        await asyncio.sleep(300)
        stored = (await scene.cluster.list(CONTROLLER_REVISION)).items
        assert sorted(one["revision"] for one in stored) == [1, 2, 3]

    play(script, powers, policy=policy)


@pytest.mark.sampled
@both
@pytest.mark.play(policy=FIRST)
async def test_a_revert_never_waits(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await asyncio.sleep(60)
    assert len(scene.on("2")) == 2
    scene.push("1")
    await ends(scene, "1")
    assert skipped(scene) == []


@pytest.mark.sampled
@both
@pytest.mark.play(policy=FIRST)
async def test_a_halted_rollout_is_replaced(scene: Scene, /, powers: Powers) -> None:
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await scene.until_exactly(lambda: bool(scene.on("2")))
    scene.push("3")
    await ends(scene, "3")
    assert skipped(scene)
    assert len(scene.on("3")) == NODES
