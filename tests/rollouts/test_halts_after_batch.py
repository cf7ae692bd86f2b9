"""A failure that halts the rollout after its batch: the nodes that were touched get their pods."""

from __future__ import annotations

from typing import Any

from gitops_ds.model.rollouts.rollout_policy import OnFailure
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both


def policy(halt: str) -> dict[str, Any]:
    return {
        "stages": [
            {"name": "wide", "nodes": {"count": 6}, "soak": "60s", "pace": {"start": 6, "max": 6}},
            {"name": "rest"},
        ],
        "limits": {"atRisk": {"cluster": "80%"}},
        "onFailure": {"halt": halt},
    }


def failed(world: RolloutWorld) -> set[str]:
    """Four of six pods fail at once; the two others do not start before they are permitted to."""
    slow = {"node-004", "node-005"}
    world.slow_nodes |= slow
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    for _ in range(6):
        world.pass_time()
    assert slow < world.on(SECOND)
    assert len(world.on(SECOND)) == 6
    return slow


@both
def test_a_halted_rollout_waits_for_starting_pods_and_takes_no_node(owned: bool) -> None:
    world = RolloutWorld(policy("after-batch"), 10, owned=owned)
    slow = failed(world)
    assert world.stages.halt is None
    assert world.hold.startswith("halts after this batch: ImagePullBackOff on ")
    assert world.stages.take == ()
    world.slow_nodes -= slow
    for _ in range(60):
        world.pass_time()
        assert len(world.on(SECOND)) <= 6
    halt = world.stages.halt
    assert halt is not None
    assert halt.stage == "wide"


@both
def test_at_once_does_not_wait(owned: bool) -> None:
    world = RolloutWorld(policy("at-once"), 10, owned=owned)
    failed(world)
    assert world.stages.halt is not None


def test_the_default_is_at_once() -> None:
    assert OnFailure().halt == "at-once"
