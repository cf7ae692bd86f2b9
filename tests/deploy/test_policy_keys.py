"""Keys of a rollout policy in rollouts from commit to pod: `atRest`, `template`, `supersede` and
`approval`.
"""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import CONTROLLER_REVISION
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import NodeSpec, PodFault, Trouble
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, POLICY, Scene, both, ends, spoil

play = rollout_scene.play

REST = f"{POLICY}atRest: RollingUpdate\n"
FIRST = f"{POLICY}supersede: finish-first\n"
FIRST_AND_EARLY = FIRST + "template: {commit: late}\n"
APPROVED = POLICY.replace("name: rest,", "name: rest, approval: {from: [team-a]},")
EARLY = """\
stages:
  - {name: canary, nodes: {count: 2}, soak: 1m}
  - {name: middle, nodes: {count: 4}, soak: 30s}
  - {name: rest, soak: 5m, pace: {start: 1, factor: 1}}
limits: {atRisk: {cluster: 30%}}
template: {commit: late}
onFailure: {revert: {how: none}}
"""


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
    assert keys.TARGET not in daemonset["metadata"]["annotations"]
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


async def committed_early(scene: Scene) -> None:
    """Waits until the DaemonSet has the second template."""
    for _ in range(240):
        if await scene.tag() == "2":
            return
        await asyncio.sleep(5)
    raise AssertionError(scene.decision)


@pytest.mark.sampled
@both
@pytest.mark.play(policy=EARLY)
async def test_the_template_is_written_early_and_the_nodes_left_keep_their_stages(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await committed_early(scene)
    assert 5 < len(scene.on("2")) < NODES
    daemonset = await scene.daemonset()
    assert keys.TARGET in daemonset["metadata"]["annotations"]
    scene.cluster.add_nodes([NodeSpec("new")])
    await asyncio.sleep(60)
    assert "new" in scene.on("2")
    assert len(scene.on("2")) <= NODES
    scene.kill()
    scene.start()
    await scene.until(lambda: len(scene.on("2")) == NODES + 1)
    await asyncio.sleep(600)
    daemonset = await scene.daemonset()
    assert keys.TARGET not in daemonset["metadata"]["annotations"]
    assert daemonset["status"]["updatedNumberScheduled"] == NODES + 1
    stored = (await scene.cluster.list(CONTROLLER_REVISION)).items
    assert sorted(one["revision"] for one in stored) == [1, 2]


@pytest.mark.sampled
@both
@pytest.mark.play(policy=EARLY)
async def test_another_commit_puts_the_proven_template_back_first(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await committed_early(scene)
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
    assert keys.TARGET not in daemonset["metadata"]["annotations"]


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
@pytest.mark.parametrize("policy", [FIRST, FIRST_AND_EARLY], ids=["at-end", "late"])
async def test_finish_first_begins_the_next_commit_when_the_rollout_is_complete(
    scene: Scene, /, powers: Powers, policy: str
) -> None:
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


@pytest.mark.sampled
@both
@pytest.mark.play(policy=FIRST)
async def test_a_revert_does_not_finish_the_rollout_first(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await asyncio.sleep(60)
    assert len(scene.on("2")) == 2
    scene.push("1")
    await ends(scene, "1")
    assert skipped(scene) == []


@pytest.mark.sampled
@both
@pytest.mark.play(policy=FIRST)
async def test_a_halted_rollout_is_not_finished_first(scene: Scene, /, powers: Powers) -> None:
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await scene.until_exactly(lambda: bool(scene.on("2")))
    scene.push("3")
    await ends(scene, "3")
    assert skipped(scene)
    assert len(scene.on("3")) == NODES


@pytest.mark.sampled
@both
@pytest.mark.play(policy=APPROVED)
async def test_a_stage_waits_for_its_approval_on_the_target_revision_of_each_rollout(
    scene: Scene, /, powers: Powers
) -> None:
    for tag in ("2", "3"):
        scene.push(tag)
        await asyncio.sleep(1200)
        assert len(scene.on(tag)) == 2
        hold = scene.decision.hold
        assert hold is not None
        assert hold.reason == "approval by team-a"
        name = (await scene.daemonset())["metadata"]["annotations"][keys.TARGET]
        patch = {"metadata": {"annotations": {names.APPROVE: "rest"}}}
        await scene.cluster.patch(CONTROLLER_REVISION, "default", name, patch)
        await ends(scene, tag)
