"""The template of a halted rollout stays on hold after its revert, until a person releases it."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.cli.requests import held_rollouts
from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import RolloutHeld
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, Body
from gitops_ds.rollouts.state import halted_templates, keys
from gitops_ds.testing.simulator import PodFault, Trouble
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, Scene, both, ends, spoil

play = rollout_scene.play


async def halted(scene: Scene) -> None:
    """The second image is halted in the canary."""
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await scene.until(lambda: scene.decision.halt is not None)
    await asyncio.sleep(60)


@pytest.mark.sampled
@both
async def test_a_halted_template_is_remembered_after_the_revert_and_held_when_applied_again(
    scene: Scene, /, powers: Powers
) -> None:
    await halted(scene)
    scene.push("1")
    await ends(scene, "1")
    assert len((await scene.cluster.list(CONTROLLER_REVISION)).items) == 1
    annotations = (await scene.daemonset())["metadata"]["annotations"]
    (kept,) = halted_templates.parse(annotations)
    assert kept.commit == scene.history.id(1)
    assert kept.ended == scene.history.id(2)

    spoil(scene)
    scene.kill()
    scene.start()
    scene.push("2")
    await asyncio.sleep(3600)
    assert scene.on("1") == set(scene.pods())
    assert await scene.tag() == "1"
    reasons = [event.hold.reason for event in scene.events if isinstance(event, RolloutHeld)]
    (reason,) = [one for one in reasons if "halted before" in one]
    assert reason.startswith("this template was halted before, with commit 000000000000: ")
    assert scene.decision.halt is None

    released = await held_rollouts.release(scene.cluster, "test", scene.history.id(1))
    assert [str(key) for key in released] == ["DaemonSet default/agent"]
    await ends(scene, "2")
    assert keys.HALTED not in (await scene.daemonset())["metadata"]["annotations"]


@both
async def test_a_halted_rollout_stays_halted_without_the_annotation_of_halted_templates(
    scene: Scene, /, powers: Powers
) -> None:
    """Who may write the DaemonSet alone releases no rollout in progress."""
    await halted(scene)
    canaries, patch = scene.on("2"), {"metadata": {"annotations": {keys.HALTED: None}}}
    spoil(scene)
    for _ in range(5):
        await scene.cluster.client(names.FIELD_MANAGER).patch(DAEMONSET, "default", "agent", patch)
        await asyncio.sleep(300)
    assert scene.on("2") <= canaries
    assert scene.decision.halt is not None


async def test_a_halt_keeps_the_commit_that_ended_it_and_has_none_before(scene: Scene, /) -> None:
    def ended(body: Body) -> list[str]:
        annotations = body["metadata"]["annotations"]
        return [one.ended for one in halted_templates.parse(annotations)]

    await halted(scene)
    assert ended(await scene.daemonset()) == [""]
    scene.push("3")
    await ends(scene, "3")
    scene.kill()
    scene.start()
    scene.push("4")
    await ends(scene, "4")
    assert ended(await scene.daemonset()) == [scene.history.id(2)]


async def test_a_release_of_the_halted_rollout_resumes_it(scene: Scene, /) -> None:
    await halted(scene)
    spoil(scene)
    await asyncio.sleep(600)
    assert 1 <= len(scene.on("2")) < NODES
    assert await held_rollouts.release(scene.cluster, "test", "f" * 40) == ()
    assert await held_rollouts.release(scene.cluster, "test", scene.history.id(1)[:12])
    await ends(scene, "2")


async def test_the_target_names_the_last_commit_without_the_template(scene: Scene, /) -> None:
    scene.push("2")
    await asyncio.sleep(90)
    scene.push("3")
    await asyncio.sleep(90)
    (target,) = [
        item
        for item in (await scene.cluster.list(CONTROLLER_REVISION)).items
        if keys.TEMPLATE_DIGEST in item["metadata"]["annotations"]
        and names.ROLLOUT in item["metadata"]["labels"]
    ]
    annotations = target["metadata"]["annotations"]
    assert annotations[names.COMMIT] == scene.history.id(2)
    assert annotations[keys.SINCE] == scene.history.id(0)
