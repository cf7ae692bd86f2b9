"""Selectors that remove nodes, in a staged rollout: the guard counts them at its start."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.model import names
from gitops_ds.model.decision import Powers
from gitops_ds.model.events.deployer import Reconciled
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.simulator import NodeSpec
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import NODES, POLICY, Scene, both
from tests.deployer.test_loop import AGENT

play = rollout_scene.play


def select(scene: Scene, tag: str, label: str) -> None:
    """A commit with another image, for the nodes with a label."""
    text = AGENT.format(tag=tag)
    selector = f"    spec:\n      nodeSelector: {{{label}: x}}\n"
    scene.history.push(text.replace("    spec:\n", selector, 1))
    scene.request()


def refused(scene: Scene) -> list[str]:
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
    assert names.TARGET not in (await scene.daemonset())["metadata"]["annotations"]
    (message,) = set(refused(scene))
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
    assert refused(scene) == []
    assert await scene.tag() == "2"
    assert set(scene.pods()) == {f"node-{n}" for n in range(1, NODES)}
