"""Staged rollouts on the simulated cluster with faults of images, users, nodes and processes."""

from __future__ import annotations

import asyncio
import random

import pytest

from gitops_ds.controller.powers import Powers
from gitops_ds.model import names
from gitops_ds.model.events.deployer import Reconciled
from gitops_ds.model.events.rollouts import RolloutHalted
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, POD
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.values import replace
from gitops_ds.simulator import NodeSpec, PodFault, Trouble
from gitops_ds.simulator.faults import RequestFault, SimulatedRequest, failure, none
from tests.deployer.rollout_scene import NODES, POLICY, Scene, both, play
from tests.deployer.test_loop import edit


def spoil(scene: Scene, *faults: PodFault) -> None:
    """From now on images behave so."""
    scene.cluster.kubelets.behaviour = replace(scene.cluster.kubelets.behaviour, faults=faults)


async def delete(scene: Scene, node: str) -> None:
    """The pod of a node is deleted, as by an eviction."""
    _, pod = scene.pods()[node]
    await scene.cluster.delete(POD, pod.namespace, pod.name)


async def ends(scene: Scene, tag: str, nodes: int = NODES) -> None:
    """Waits until the rollout is complete, and the DaemonSet has its template."""
    await scene.until(lambda: len(scene.on(tag)) == nodes)
    await asyncio.sleep(120)
    assert await scene.tag() == tag
    daemonset = await scene.daemonset()
    assert names.TARGET not in daemonset["metadata"]["annotations"]
    assert daemonset["status"]["updatedNumberScheduled"] == nodes
    uids = {pod.uid for _, pod in scene.pods().values()}
    await asyncio.sleep(1200)
    assert {pod.uid for _, pod in scene.pods().values()} == uids


async def test_a_template_that_the_api_server_refuses_is_skipped_with_its_reason(
    scene: Scene, /
) -> None:
    def deny(request: SimulatedRequest) -> RequestFault | None:
        denied = request.resource == DAEMONSET and request.dry_run
        return failure(400) if denied else None

    scene.of_deployer = deny
    scene.push("2")
    await asyncio.sleep(120)
    last = next(one for one in reversed(scene.events) if isinstance(one, Reconciled))
    assert [one.reason for one in last.failed] == [SkipReason.REFUSED]
    assert "the API server refuses it: admission webhook" in last.failed[0].message
    assert len(scene.on("1")) == NODES
    scene.of_deployer = none
    scene.request()
    await ends(scene, "2")


@pytest.mark.sampled
@both
async def test_a_bad_image_is_halted_in_the_canary_and_a_revert_in_git_touches_only_its_pods(
    scene: Scene, /, powers: Powers
) -> None:
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    first = {pod.uid for _, pod in scene.pods().values()}
    scene.push("2")
    await asyncio.sleep(1800)
    touched = scene.on("2")
    assert 1 <= len(touched) <= 2
    assert len([one for one in scene.events if isinstance(one, RolloutHalted)]) == 1
    assert scene.decision.halt is not None
    assert scene.decision.halt.stage == "canary"
    untouched = {pod.uid for tag, pod in scene.pods().values() if tag == "1"}
    assert untouched < first
    scene.push("1")
    await ends(scene, "1")
    assert untouched <= {pod.uid for _, pod in scene.pods().values()}
    assert len((await scene.cluster.list(CONTROLLER_REVISION)).items) == 1


@pytest.mark.sampled
@both
async def test_nodes_that_join_and_pods_that_are_deleted_in_the_canary_get_the_proven_template(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2, 2)
    canary = scene.on("2")
    scene.cluster.add_nodes(NodeSpec(f"new-{n}") for n in range(5))
    for node in sorted(scene.on("1"))[:4]:
        await delete(scene, node)
    for _ in range(12):
        await asyncio.sleep(5)
        assert scene.on("2") == canary
    assert len(scene.on("1")) == NODES + 5 - 2
    await ends(scene, "2", NODES + 5)


@pytest.mark.sampled
@both
async def test_a_pinned_pod_that_is_deleted_in_the_canary_is_brought_back_in_its_stage(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2, 2)
    canary = scene.on("2")
    await delete(scene, min(canary))
    for _ in range(30):
        await asyncio.sleep(2)
        assert scene.on("2") <= canary
    await ends(scene, "2")


@pytest.mark.sampled
@both
@pytest.mark.parametrize("seconds", [3, 60, 170])
async def test_a_newer_commit_in_mid_rollout_starts_at_the_canary_again(
    scene: Scene, /, powers: Powers, seconds: int
) -> None:
    scene.push("2")
    await asyncio.sleep(seconds)
    scene.push("3")
    for _ in range(20):
        await asyncio.sleep(5)
        assert len(scene.on("3")) <= 2
    await ends(scene, "3")
    stored = (await scene.cluster.list(CONTROLLER_REVISION)).items
    assert len(stored) == 2


@pytest.mark.sampled
@both
@pytest.mark.parametrize("seed", range(5))
async def test_processes_that_are_killed_at_any_instant_continue_where_they_were(
    scene: Scene, /, powers: Powers, seed: int
) -> None:
    chance = random.Random(seed)
    scene.push("2")
    for _ in range(30):
        await asyncio.sleep(chance.uniform(0.001, 12))
        scene.check()
        scene.kill()
        await asyncio.sleep(chance.choice((0.0, 0.5, 8.0)))
        assert len(scene.on("2")) <= 2 or "canary" in scene.record().passed
        scene.start()
    await ends(scene, "2")


@pytest.mark.sampled
@both
async def test_an_edit_of_the_template_during_a_rollout_is_corrected_and_restarts_no_pod(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2, 2)
    await asyncio.sleep(30)
    uids = {pod.uid for _, pod in scene.pods().values()}
    await edit(scene.cluster)
    await asyncio.sleep(50)
    assert await scene.tag() == "1"
    assert {pod.uid for _, pod in scene.pods().values()} == uids
    await ends(scene, "2")


@pytest.mark.sampled
@both
async def test_a_deleted_target_revision_is_created_again_and_the_rollout_starts_at_the_canary(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2, 2)
    await asyncio.sleep(30)
    name = (await scene.daemonset())["metadata"]["annotations"][names.TARGET]
    await scene.cluster.delete(CONTROLLER_REVISION, "default", name)
    await ends(scene, "2")


@pytest.mark.sampled
@both
async def test_a_policy_that_is_removed_in_mid_rollout_leaves_the_strategy_of_git_to_the_controller(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2, 2)
    scene.history.policy = ""
    scene.push("2")
    await ends(scene, "2")
    daemonset = await scene.daemonset()
    assert daemonset["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert names.ROLLOUT_POLICY not in daemonset["metadata"]["annotations"]


@pytest.mark.sampled
@both
async def test_an_agent_on_hold_keeps_its_template_and_takes_the_next_commit_once_released(
    scene: Scene, /, powers: Powers
) -> None:
    scene.history.agent = "hold: true\n"
    scene.push("2")
    await asyncio.sleep(600)
    assert not scene.on("2")
    assert await scene.tag() == "1"
    scene.history.agent = ""
    scene.push("2")
    await asyncio.sleep(60)
    assert len(scene.on("2")) == 2
    await ends(scene, "2")


@pytest.mark.sampled
@both
async def test_the_policy_may_change_in_mid_rollout(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2, 2)
    scene.history.policy = POLICY.replace("count: 2", "count: 3")
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 3, 2)
    await ends(scene, "2")


@pytest.mark.sampled
@both
def test_a_stage_waits_for_its_approval_on_the_target_revision_of_each_rollout(
    powers: Powers,
) -> None:
    async def script(scene: Scene) -> None:
        for tag in ("2", "3"):
            scene.push(tag)
            await asyncio.sleep(1200)
            assert len(scene.on(tag)) == 2
            hold = scene.decision.hold
            assert hold is not None
            assert hold.reason == "approval by team-a"
            name = (await scene.daemonset())["metadata"]["annotations"][names.TARGET]
            patch = {"metadata": {"annotations": {names.APPROVE: "rest"}}}
            await scene.cluster.patch(CONTROLLER_REVISION, "default", name, patch)
            await ends(scene, tag)

    policy = POLICY.replace("name: rest,", "name: rest, approval: {from: [team-a]},")
    play(script, powers, policy=policy)
