"""A canary that takes other nodes, after its own died, left or were cordoned, is an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.model.events.rollouts import StageNodesReplaced
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.rollouts.test_reported_holds import Service
from tests.rollouts.test_stages import FAST

ONE: dict[str, Any] = {
    **FAST,
    "stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "60s"}, {"name": "rest"}],
}


def die(world: RolloutWorld) -> None:
    world.nodes[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def leave(world: RolloutWorld) -> None:
    del world.nodes[0]


@pytest.mark.parametrize(
    ("happens", "reason", "taken"),
    [(die, "NodeNotReady", "node-001"), (leave, "NodeGone", "node-003")],  # of the same zone
)
def test_each_replacement_is_one_event(
    happens: Callable[[RolloutWorld], None], reason: str, taken: str
) -> None:
    world = RolloutWorld(ONE, 4)
    service = Service(world)
    world.commit(SECOND)
    for number in range(12):
        service.turn()
        world.turn()
        world.kubelets()
        if number == 5:
            assert world.on(SECOND) == {"node-000"}
            happens(world)
    replaced = [one for one in service.events if isinstance(one, StageNodesReplaced)]
    assert [(one.stage, one.lost, one.taken) for one in replaced] == [
        ("canary", (f"node-000 ({reason})",), (taken,))
    ]
