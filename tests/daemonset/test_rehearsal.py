"""The simulation of a rollout: its duration, the nodes at once, and where it stalls."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.apimachinery import nodes
from gitops_ds.daemonset import rollout_simulation
from gitops_ds.daemonset.rollout_simulation import Rehearsal, RolloutPace
from gitops_ds.model import names
from gitops_ds.model.live import Node
from tests.daemonset import world
from tests.daemonset.world import daemonset, rolling

PACE = RolloutPace(start=10, stop=2)


def fleet(number: int, broken: int = 0) -> list[Node]:
    return [
        nodes.node_of(world.node(f"node-{index:03d}", ready=index >= broken))
        for index in range(number)
    ]


def play(nodes: list[Node], strategy: dict[str, Any], **spec: Any) -> Rehearsal:
    old, new = (
        daemonset(image, updateStrategy=strategy, **spec) for image in ("agent:1", "agent:2")
    )
    return rollout_simulation.rehearse(old, new, nodes, PACE)


@pytest.mark.parametrize(
    ("simulated", "expected"),
    [
        pytest.param(
            play(fleet(4), rolling(1)), Rehearsal(48, 4, 1), id="one by one: each stops and starts"
        ),
        pytest.param(play(fleet(4), rolling(2)), Rehearsal(24, 2, 2), id="two at a time"),
        pytest.param(
            play(fleet(10), rolling("30%")), Rehearsal(48, 4, 3), id="per cent of the nodes"
        ),
        pytest.param(
            play(fleet(4), rolling(0, 2)),
            Rehearsal(22, 2, 0),
            id="with surge the new one starts first",
        ),
        pytest.param(
            play(fleet(2), rolling(1), minReadySeconds=60),
            Rehearsal(144, 2, 1),
            id="with minReadySeconds",
        ),
        pytest.param(
            play(fleet(4), {"type": "OnDelete"}), Rehearsal(0, 0, 0), id="on delete nothing moves"
        ),
        pytest.param(play([], rolling(1)), Rehearsal(0, 0, 0), id="no node, no rollout"),
        pytest.param(
            rollout_simulation.rehearse(None, daemonset(), fleet(300), PACE),
            Rehearsal(10, 2, 0),
            id="a first one, 250 at a time",
        ),
    ],
)
def test_a_rollout_that_ends(simulated: Rehearsal, expected: Rehearsal) -> None:
    assert simulated == expected


def test_nodes_that_are_not_ready_use_up_the_budget_and_block_the_rollout() -> None:
    simulated = play(fleet(6, broken=1), rolling(1))
    assert simulated.waiting == tuple(f"node-{index:03d}" for index in range(6))
    more = play(fleet(6, broken=1), rolling(2))
    assert more.waiting == ("node-000",)
    assert more.steps > 1


def test_a_suspended_one_moves_nothing() -> None:
    new = daemonset("agent:2", updateStrategy=rolling(1))
    new["metadata"]["annotations"] = {names.SUSPEND: "true"}
    assert rollout_simulation.rehearse(
        daemonset(updateStrategy=rolling(1)), new, fleet(3), PACE
    ) == Rehearsal(0, 0, 0)


@pytest.mark.parametrize(("number", "share"), [(1200, 1), (3000, "1%"), (2000, 7)])
def test_a_long_rollout_is_estimated_from_its_first_steps(number: int, share: int | str) -> None:
    simulated = play(fleet(number), rolling(share))
    at_once = share if isinstance(share, int) else number // 100
    steps = -(-number // at_once)
    assert simulated.estimated
    assert simulated.at_once == at_once
    assert simulated.steps == pytest.approx(steps, rel=0.05)
    assert simulated.seconds == pytest.approx(steps * (PACE.start + PACE.stop), rel=0.05)
    assert simulated.waiting == ()


def test_a_long_one_on_nodes_of_which_some_are_not_ready_waits_for_those() -> None:
    simulated = play(fleet(1500, broken=2), rolling(5))
    assert simulated.estimated
    assert simulated.waiting == ("node-000", "node-001")


def test_before_a_node_is_updated_nothing_is_extrapolated() -> None:
    body = rollout_simulation._live(daemonset("agent:2"), 2)
    stage = rollout_simulation._Stage(body, fleet(3), PACE)
    assert stage.estimated() == Rehearsal(0.0, 0, 0, ("node-000", "node-001", "node-002"))


def test_the_limit_of_a_simulation_counts_each_turn_once() -> None:
    stage = rollout_simulation._Stage(rollout_simulation._live(daemonset(), 2), fleet(3), PACE)
    for number in (1, 2):
        stage.turn()
        assert stage.turns == number
