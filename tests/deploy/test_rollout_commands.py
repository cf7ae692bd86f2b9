"""Commands in a staged rollout: `plan` names its stages, and waits end where it is halted."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.cli.plan import planning
from gitops_ds.cli.wait import by_health, by_status
from gitops_ds.cli.wait.by_health import WaitOptions
from gitops_ds.cli.wait.by_status import RolloutListener
from gitops_ds.core import errors
from gitops_ds.core.change import Change
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import RolloutProgressed
from gitops_ds.core.objects import Key
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.deploy.apply import plan_draft
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.plan import printers
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.testing.simulator import PodFault, Trouble
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, Scene, ends, spoil
from tests.deploy.test_loop import AGENT

play = rollout_scene.play


async def planned(scene: Scene) -> Change:
    """The change of the DaemonSet in a plan of the newest commit."""
    snapshot = await scene.history.snapshot(await scene.history.tip())
    bundle = prepare.prepare(snapshot).bundle
    place = DeployTarget(
        scene.cluster.client("plan"), "gitops-ds", "test", "memory", clock=scene.cluster.server.now
    )
    draft = await plan_draft.draft(place, bundle, snapshot.commit, ApplyOptions())
    plan = planning.with_stages(draft.plan, draft.bundle, draft.inputs.live)
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


KEY = Key("apps", "DaemonSet", "default", "agent")


async def test_an_apply_that_waits_ends_when_the_rollout_is_halted(scene: Scene, /) -> None:
    messages: list[str] = []
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.FailedRollout, match="halted in stage canary: ErrImagePull"):
        await by_status.wait_for_rollouts(
            scene.cluster, [KEY], 3600, RolloutListener(messages.append)
        )
    assert asyncio.get_running_loop().time() - began < 300
    assert "is in progress" in messages[0]
    for run in range(2):  # also a wait that begins afterwards
        with pytest.raises(errors.FailedRollout, match="canary"):
            await by_status.wait_for_rollouts(
                scene.cluster, [KEY], 60 + run, RolloutListener(messages.append)
            )


async def test_an_apply_that_waits_ends_with_the_rollout(scene: Scene, /) -> None:
    messages: list[str] = []
    shown: list[RolloutProgress] = []
    scene.push("2")
    await asyncio.sleep(1)
    listener = RolloutListener(
        messages.append, lambda _, now: shown.append(now), scene.cluster.server.now
    )
    await by_status.wait_for_rollouts(scene.cluster, [KEY], 3600, listener)
    await ends(scene, "2")
    assert any("canary 2/2, rest 0/8" in message for message in messages)
    assert sum("is in progress" in message for message in messages) == 1
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
        await by_health.wait_for_rollout(scene.cluster, "gitops-ds", options, lambda _: None)
    assert asyncio.get_running_loop().time() - began < 300


async def shown(scene: Scene, namespace: str) -> dict[str, list[str]]:
    """The changes that `plan` shows with the state in a namespace: the fields by object."""
    snapshot = await scene.history.snapshot(await scene.history.tip())
    bundle = prepare.prepare(snapshot).bundle
    client, clock = scene.cluster.client("plan"), scene.cluster.server.now
    place = DeployTarget(client, namespace, "test", "memory", clock=clock)
    options = ApplyOptions(is_shown_only=True)
    draft = await plan_draft.draft(place, bundle, snapshot.commit, options)
    return {
        str(write.key): [str(field.path) for field in write.fields] for write in draft.plan.writes
    }


@pytest.mark.parametrize("namespace", ["gitops-ds", "elsewhere"])
async def test_a_plan_shows_no_change_that_only_the_lack_of_the_state_of_the_service_makes(
    scene: Scene, /, namespace: str
) -> None:
    assert await shown(scene, namespace) == {}
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2)
    assert await shown(scene, namespace) == {}
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(300)
    assert await scene.tag() == "2"
    assert await shown(scene, namespace) == {}
    scene.push("1")
    await scene.until(lambda: len(scene.on("1")) == NODES)
    await asyncio.sleep(300)
    assert await shown(scene, namespace) == {}
