"""The simulation of a rollout: its duration, the nodes at once, and where it stalls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Node, NodeImpact
from gitops_ds.daemonset import rollout_forecast
from gitops_ds.daemonset.rollout_forecast import RolloutForecast, RolloutPace
from gitops_ds.kube.apimachinery import daemonsets, nodes
from tests.daemonset import world
from tests.daemonset.world import daemonset, rolling

PACE = RolloutPace(start=10, stop=2)


def fleet(number: int, broken: int = 0, pool: int = 0) -> list[Node]:
    """Nodes of which the first `broken` are not ready, and the first `pool` have a label."""
    return [
        nodes.node_of(
            world.node(
                f"node-{index:03d}", {"pool": "a"} if index < pool else {}, ready=index >= broken
            )
        )
        for index in range(number)
    ]


def play(nodes: list[Node], strategy: dict[str, Any], **spec: Any) -> RolloutForecast:
    old, new = (
        daemonset(image, updateStrategy=strategy, **spec) for image in ("agent:1", "agent:2")
    )
    return rollout_forecast.of(old, new, nodes, PACE)


def for_the_pool(image: str) -> dict[str, Any]:
    body = daemonset(image, updateStrategy=rolling(1))
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
    return body


def first(nodes: list[Node], body: dict[str, Any] | None = None) -> RolloutForecast:
    return rollout_forecast.of(None, body or daemonset(), nodes, PACE)


def with_another_collision_count() -> RolloutForecast:
    old = {**daemonset(), "status": {"collisionCount": 1}}
    return rollout_forecast.of(old, daemonset(), fleet(3), PACE)


def to_the_pool(old: dict[str, Any], new: dict[str, Any]) -> RolloutForecast:
    return rollout_forecast.of(old, new, fleet(4, pool=2), PACE)


ALL_OF_SIX = tuple(f"node-{index:03d}" for index in range(6))
ROLLOUTS: dict[str, tuple[Callable[[], RolloutForecast], RolloutForecast]] = {
    "one by one: each stops and starts": (
        lambda: play(fleet(4), rolling(1)),
        RolloutForecast(48, 4, 1),
    ),
    "a small fleet is simulated to the end": (
        lambda: play(fleet(20), rolling(1)),
        RolloutForecast(240, 20, 1),
    ),
    "two at a time": (lambda: play(fleet(4), rolling(2)), RolloutForecast(24, 2, 2)),
    "per cent of the nodes": (lambda: play(fleet(10), rolling("30%")), RolloutForecast(48, 4, 3)),
    "with surge the new one starts first": (
        lambda: play(fleet(4), rolling(0, 2)),
        RolloutForecast(22, 2, 0),
    ),
    "with minReadySeconds": (
        lambda: play(fleet(2), rolling(1), minReadySeconds=60),
        RolloutForecast(144, 2, 1),
    ),
    "on delete nothing moves": (
        lambda: play(fleet(4), {"type": "OnDelete"}),
        RolloutForecast(0, 0, 0),
    ),
    "no node, no rollout": (lambda: play([], rolling(1)), RolloutForecast(0, 0, 0)),
    "a first one, 250 at a time": (lambda: first(fleet(300)), RolloutForecast(10, 2, 0)),
    "a first one waits for nodes that are not ready": (
        lambda: first(fleet(3, broken=1)),
        RolloutForecast(10, 1, 0, ("node-000",)),
    ),
    "a first one on some of the nodes": (
        lambda: first(fleet(3, pool=1), for_the_pool("agent:1")),
        RolloutForecast(10, 1, 0),
    ),
    "the same template again": (
        lambda: rollout_forecast.of(daemonset(), daemonset(), fleet(3), PACE),
        RolloutForecast(0, 0, 0),
    ),
    "the same template under another name of its revision": (
        with_another_collision_count,
        RolloutForecast(0, 0, 0),
    ),
    "without a history": (
        lambda: play(fleet(4), rolling(1), revisionHistoryLimit=0),
        RolloutForecast(48, 4, 1),
    ),
    "a node that is not ready uses up the budget and blocks the rollout": (
        lambda: play(fleet(6, broken=1), rolling(1)),
        RolloutForecast(12, 1, 0, ALL_OF_SIX),
    ),
    "and with a greater budget it alone remains": (
        lambda: play(fleet(6, broken=1), rolling(2)),
        RolloutForecast(60, 5, 1, ("node-000",)),
    ),
    "nodes that are no longer eligible lose their pods at once": (
        lambda: to_the_pool(daemonset(), for_the_pool("agent:1")),
        RolloutForecast(26, 3, 1),
    ),
    "nodes that become eligible get a pod at once": (
        lambda: to_the_pool(
            for_the_pool("agent:1"), daemonset("agent:1", updateStrategy=rolling(1))
        ),
        RolloutForecast(34, 2, 2),
    ),
}


@pytest.mark.parametrize(("simulated", "expected"), ROLLOUTS.values(), ids=ROLLOUTS)
def test_a_rollout_takes_this_long(
    simulated: Callable[[], RolloutForecast], expected: RolloutForecast
) -> None:
    found = simulated()
    assert found == expected
    assert not found.estimated


@pytest.mark.parametrize("template", [{}, {"metadata": {"labels": {"app": "other"}}}])
def test_one_that_does_not_select_its_pods_is_not_simulated(template: dict[str, Any]) -> None:
    """The API server refuses it; here its pods were created without end."""
    new = daemonset("agent:2", updateStrategy=rolling(1))
    new["spec"]["template"] = {**new["spec"]["template"], "metadata": {}, **template}
    assert rollout_forecast.of(
        daemonset(updateStrategy=rolling(1)), new, fleet(3), PACE
    ) == RolloutForecast(0, 0, 0)


def test_a_suspended_one_moves_nothing() -> None:
    new = daemonset("agent:2", updateStrategy=rolling(1))
    new["metadata"]["annotations"] = {names.SUSPEND: "true"}
    assert rollout_forecast.of(
        daemonset(updateStrategy=rolling(1)), new, fleet(3), PACE
    ) == RolloutForecast(0, 0, 0)


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


@pytest.mark.parametrize(("share", "estimated"), [(67, True), (72, False)])
def test_a_rollout_of_a_thousand_nodes_is_estimated_after_sixty_turns(
    share: int, estimated: bool
) -> None:
    """A step takes four turns: one that deletes, one that creates, and two that wait. Fifteen steps
    of 67 nodes take sixty of them, fourteen of 72 nodes fewer.
    """
    steps = -(-1000 // share)
    found = play(fleet(1000), rolling(share))
    assert (found.estimated, found.steps) == (estimated, steps)
    assert found.seconds == pytest.approx(steps * (PACE.start + PACE.stop))


def test_a_long_one_on_nodes_of_which_some_are_not_ready_waits_for_those() -> None:
    simulated = play(fleet(1200, broken=200), rolling(205))
    assert simulated.estimated
    assert simulated.steps == pytest.approx(200, rel=0.05)
    assert simulated.seconds == pytest.approx(200 * (PACE.start + PACE.stop), rel=0.05)
    assert simulated.waiting == tuple(f"node-{index:03d}" for index in range(200))


def stage_of(body: dict[str, Any]) -> rollout_forecast._Stage:
    return rollout_forecast._Stage(daemonsets.daemonset_of(body), fleet(3), PACE)


def test_before_a_node_is_updated_nothing_is_extrapolated() -> None:
    stage = stage_of(daemonset("agent:2"))
    assert stage.estimated() == RolloutForecast(0.0, 0, 0, ("node-000", "node-001", "node-002"))


def test_the_limit_of_a_simulation_counts_each_turn_once() -> None:
    stage = stage_of(daemonset())
    for number in (1, 2):
        stage.turn()
        assert stage.turns == number


@pytest.mark.parametrize(
    ("image", "impact"),
    [("agent:1", NodeImpact()), ("agent:2", NodeImpact(restarted=("node-0", "node-1")))],
)
@pytest.mark.parametrize("orphans", [0, 1, 2])
def test_a_change_affects_the_pods_that_are_adopted_as_its_own(
    orphans: int, image: str, impact: NodeImpact
) -> None:
    found = world.World(daemonset(updateStrategy=rolling(1)), 2)
    found.settle()
    for body in list(found.pods.values())[:orphans]:
        del body["metadata"]["ownerReferences"]
    new = daemonset(image, updateStrategy=rolling(1))
    assert rollout_forecast.impact_of_change(found.observe(), new) == impact
