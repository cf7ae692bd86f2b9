"""The plan of a commit over a live cluster names the stages, and the rollout follows them."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.commands import plan as plan_command
from gitops_ds.deployer.apply import prepared_plan
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.model.change import Change
from gitops_ds.model.decision import Powers
from gitops_ds.model.events.rollouts import RolloutProgressed
from gitops_ds.pipeline import prepare
from gitops_ds.plan import printers
from gitops_ds.plan.options import ApplyOptions
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import NODES, Scene
from tests.deployer.test_loop import AGENT

play = rollout_scene.play


async def planned(scene: Scene) -> Change:
    """The change of the DaemonSet in a plan of the newest commit."""
    snapshot = await scene.history.snapshot(await scene.history.tip())
    bundle = prepare.prepare(snapshot).bundle
    place = DeployTarget(
        scene.cluster.client("plan"), "gitops-ds", "test", "memory", clock=scene.cluster.server.now
    )
    draft = await prepared_plan.draft(place, bundle, snapshot.commit, ApplyOptions())
    plan = plan_command.with_stages(draft.plan, draft.bundle, draft.applier.live)
    return next(change for change in plan.changes if change.key.is_daemonset)


@pytest.mark.sampled
@pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])
async def test_a_plan_over_the_live_cluster_lists_the_nodes_in_the_order_of_their_update(
    scene: Scene, /, powers: Powers
) -> None:
    scene.history.push(AGENT.format(tag="2"))
    change = await planned(scene)
    assert change.stages is not None
    assert [len(stage.nodes) for stage in change.stages.stages] == [2, NODES - 2]
    text = "\n".join(printers.change_lines([change]))
    assert "staged rollout of 10 nodes in 2 stages" in text
    assert "canary: 2 nodes: node-0, node-1; from 0 s" in text
    image = 'spec.template.spec.containers[agent].image: "example.com/agent:{}"'
    assert f'{image.format(1)} -> "example.com/agent:2"' in text
    assert "no new revision" not in text
    assert "OnDelete)" not in text
    scene.request()
    await scene.until(lambda: len(scene.on("2")) == NODES)
    taken = [
        node
        for event in scene.events
        if isinstance(event, RolloutProgressed)
        for node in event.stages.take
    ]
    assert tuple(dict.fromkeys(taken)) == change.stages.order


@pytest.mark.sampled
@pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])
async def test_the_plan_of_a_revert_has_no_stages(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2)
    scene.history.push(AGENT.format(tag="1"))
    change = await planned(scene)
    assert change.stages is None
    text = "\n".join(printers.change_lines([change]))
    assert "returns the updated nodes to the proven template of" in text
    assert "no pod restarts" not in text
    scene.history.commits.pop()
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(300)
    assert await scene.tag() == "2"
    scene.history.push(AGENT.format(tag="1"))
    change = await planned(scene)
    assert change.stages is None
    text = "\n".join(printers.change_lines([change]))
    assert "replaces its pods without stages: the template was proved before" in text
