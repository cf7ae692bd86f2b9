"""Rollouts that a person, a guard or the API server stops, or that do not begin."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.cli.requests import held_rollouts, service_requests
from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import NodeSpec
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest, failure, none
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, POLICY, Scene, both, ends
from tests.deploy.test_loop import AGENT
from tests.deploy.test_requests import NAME

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
    await service_requests.suspend_agent(
        scene.cluster, "agent", "default", suspended=True, reason="maintenance"
    )
    await asyncio.sleep(3600)
    assert scene.on("2") == canary
    assert len(scene.on("1")) == NODES - 2
    assert scene.decision.hold is not None
    assert scene.decision.hold.reason == "suspended: maintenance"
    await service_requests.suspend_agent(scene.cluster, "agent", "default", suspended=False)
    assert names.SUSPEND_REASON not in (await scene.daemonset())["metadata"]["annotations"]
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
    nothing = await held_rollouts.hold(scene.cluster, "test", "f" * 40, now)
    assert nothing.held == ()
    assert nothing.words == (
        "; no rollout in progress is of this commit: hold one of these (DaemonSet default/agent of "
        f"{commit[:12]})"
    )
    why = "the release notes say so"
    held = await held_rollouts.hold(scene.cluster, "test", commit, now, why)
    assert len(held.held) == 1
    await asyncio.sleep(3600)
    assert scene.on("2") == canary
    assert scene.decision.halt is None
    assert scene.decision.hold is not None
    reason = scene.decision.hold.reason
    assert reason == f"this template was put on hold, with commit {commit[:12]}: {why}"
    await hold(scene, None)
    assert len(await held_rollouts.release(scene.cluster, "test", commit)) == 1
    await ends(scene, "2")
    assert keys.HALTED not in (await scene.daemonset())["metadata"]["annotations"]


async def test_a_template_that_the_api_server_refuses_is_skipped_with_its_reason(
    scene: Scene, /
) -> None:
    def deny(request: SimulatedRequest) -> RequestFault | None:
        denied = request.resource == DAEMONSET and request.dry_run
        return failure(400) if denied else None

    scene.of_deployer = deny
    scene.push("2")
    await asyncio.sleep(120)
    last = next(event for event in reversed(scene.events) if isinstance(event, Reconciled))
    assert [one.reason for one in last.failed] == [SkipReason.REFUSED]
    assert "the API server refuses it: admission webhook" in last.failed[0].message
    assert len(scene.on("1")) == NODES
    scene.of_deployer = none
    scene.request()
    await ends(scene, "2")


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


def select(scene: Scene, tag: str, label: str) -> None:
    """A commit with another image, for the nodes with a label."""
    text = AGENT.format(tag=tag)
    selector = f"    spec:\n      nodeSelector: {{{label}: x}}\n"
    scene.history.push(text.replace("    spec:\n", selector, 1))
    scene.request()


def lost(scene: Scene) -> list[str]:
    return [
        one.message
        for event in scene.events
        if isinstance(event, Reconciled)
        for one in event.failed
        if one.reason is SkipReason.LOSES_NODES
    ]


def labelled() -> list[NodeSpec]:
    """`most` is on all nodes but one, `few` on two of them."""
    return [
        NodeSpec(
            f"node-{n}",
            labels={**({"most": "x"} if n else {}), **({"few": "x"} if n > NODES - 3 else {})},
        )
        for n in range(NODES)
    ]


@pytest.mark.sampled
@both
@pytest.mark.play(nodes=labelled(), policy=POLICY)
async def test_a_rollout_that_would_lose_most_nodes_does_not_begin(
    scene: Scene, /, powers: Powers
) -> None:
    select(scene, "2", "few")
    await asyncio.sleep(600)
    assert len(scene.on("1")) == NODES
    assert keys.TARGET not in (await scene.daemonset())["metadata"]["annotations"]
    (message,) = set(lost(scene))
    assert "8 of 10 nodes would lose an agent" in message
    nodes = ("node-0, node-1, node-2, node-3, node-4", "and 3 more")
    assert all(message.count(part) == 1 for part in nodes), message
    scene.push("1")
    await asyncio.sleep(60)
    scene.push("3")
    await scene.until(lambda: len(scene.on("3")) == NODES)


@pytest.mark.sampled
@both
@pytest.mark.play(nodes=labelled(), policy=POLICY)
async def test_a_loss_within_the_guard_is_counted_once(scene: Scene, /, powers: Powers) -> None:
    select(scene, "2", "most")
    await scene.until(lambda: len(scene.on("2")) == NODES - 1)
    await asyncio.sleep(600)
    assert lost(scene) == []
    assert await scene.tag() == "2"
    assert set(scene.pods()) == {f"node-{n}" for n in range(1, NODES)}
