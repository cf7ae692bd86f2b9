"""Upstream's unit tests of the rolling update (pkg/controller/daemon/update_test.go), as stories
with its numbers, turn by turn.

Upstream's sync can first settle and then pace, when the effects of the first half are seen at once,
which only its fakes do; a turn here does one of both. So its "2 creates, 2 deletes" are two turns
here, deletes first. Without counterpart: ControlledHistories of another namespace (an observation
holds one namespace; test_cache.py), the map of nodes with empty entries (GetUnavailableNumbers; its
numbers are in test_rollout.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.model import names
from gitops_ds.model.decision import CreatePod, DeletePod
from tests.daemonset.world import (
    START,
    World,
    daemonset,
    node,
    rolling,
)


class Story:
    """A fleet without changes of its own; the creates and deletes of each reconciliation are
    counted, and deleted pods disappear at once.
    """

    def __init__(
        self, nodes: list[dict[str, Any]] | int, strategy: dict[str, Any], *, ready: bool = True
    ) -> None:
        self.world = World(daemonset(updateStrategy=strategy), nodes)
        self.turn()
        if ready:
            self.ready()

    def turn(self) -> tuple[int, int]:
        actions = self.world.turn().actions
        for name in [
            name for name, pod in self.world.pods.items() if "deletionTimestamp" in pod["metadata"]
        ]:
            self.world.vanish(name)
        return sum(isinstance(a, CreatePod) for a in actions), sum(
            isinstance(a, DeletePod) for a in actions
        )

    def turns(self, *expected: tuple[int, int]) -> None:
        assert [self.turn() for _ in expected] == list(expected)

    def ready(self, *nodes: str, old: bool = True, ready: bool = True) -> None:
        """Pods become ready now, or unready: all of them, or those on some nodes, or only those of
        the newest template.
        """
        newest = self.world.body["metadata"]["annotations"][names.TEMPLATE_GENERATION]
        for pod in self.world.parsed():
            if (
                (not nodes or pod.node in nodes)
                and (old or pod.template_generation == newest)
                and pod.ready is not ready
            ):
                self.world.start(self.world.pods[pod.name], ready)

    def edit(self, image: str = "agent:2", **spec: Any) -> None:
        self.world.edit(image)
        self.world.body["spec"] |= spec

    @property
    def on(self) -> dict[str, str]:
        """Which pods there are, and where."""
        return {pod.name: pod.node for pod in self.world.parsed()}


def test_pods_are_replaced_two_by_two() -> None:
    story = Story(5, rolling(2))
    story.edit()
    for batch in (2, 2, 1):
        story.turns((0, batch), (batch, 0), (0, 0))
        story.ready()
    story.turns((0, 0))


def test_with_surge_two_new_pods_are_created_first() -> None:
    story = Story(5, rolling(0, 2))
    story.edit()
    story.turns((2, 0), (0, 0))
    story.ready()
    story.turns((0, 2), (2, 0), (0, 0))
    story.ready()
    story.turns((0, 2), (1, 0), (0, 0))
    story.ready()
    story.turns((0, 1), (0, 0))


def test_with_surge_the_pod_of_an_ineligible_node_is_deleted_when_enough_are_available() -> None:
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    nodes = [node(f"node-{i}", taints=[taint] if i == 0 else None) for i in range(5)]
    story = Story([], rolling(0, 1))
    story.world.nodes = nodes
    story.world.body["spec"]["template"]["spec"]["tolerations"] = [
        {"key": taint["key"], "operator": "Exists"}
    ]
    story.edit("agent:1")
    story.turns((5, 0))
    story.ready()
    del story.world.body["spec"]["template"]["spec"]["tolerations"]
    story.edit("agent:1")
    story.turns((1, 1))
    for _ in range(3):
        story.ready()
        story.turns((0, 1), (1, 0))
    story.ready()
    story.turns((0, 1), (0, 0))
    assert sorted(story.on.values()) == ["node-1", "node-2", "node-3", "node-4"]


def test_new_pods_that_do_not_get_ready_stop_the_rollout() -> None:
    story = Story(5, rolling(3))
    story.edit()
    story.turns((0, 3), (3, 0), (0, 0), (0, 0))


def test_a_second_edit_replaces_the_pods_that_never_got_ready_and_leaves_the_others_alone() -> None:
    story = Story(5, rolling(2))
    story.edit()
    story.turns((0, 2), (2, 0), (0, 0))
    well = {pod.name for pod in story.world.parsed() if pod.ready}
    story.edit("agent:3")
    story.turns((0, 2), (2, 0), (0, 0))
    assert well == {pod.name for pod in story.world.parsed() if pod.ready}
    assert len(well) == 3


@pytest.mark.parametrize("most", range(1, 12))
def test_ten_pods_of_twenty_that_are_not_ready_are_replaced_and_others_within_the_budget(
    most: int,
) -> None:
    story = Story(20, rolling(most))
    story.ready(*(f"node-{i}" for i in range(10)), ready=False)
    for image in ("agent:2", "agent:3"):
        story.edit(image)
        replaced = max(10, most)
        story.turns((0, replaced), (replaced, 0), (0, 0))
        assert sum(pod.ready for pod in story.world.parsed()) == 20 - replaced


def test_old_pods_that_are_not_ready_go_and_new_ones_that_are_not_ready_use_up_the_budget() -> None:
    story = Story(100, rolling(10))
    story.edit()
    story.turns((0, 10), (10, 0))
    outdated = [pod.node for pod in story.world.parsed() if pod.ready][:2]
    story.ready(*outdated, ready=False)
    story.turns((0, 2), (2, 0), (0, 0))


def test_old_pods_that_are_not_ready_all_go_at_once() -> None:
    story = Story(5, rolling(3), ready=False)
    story.edit()
    story.turns((0, 5), (5, 0), (0, 0))


def test_with_surge_all_old_pods_that_are_not_ready_get_a_successor_and_then_the_limit_counts() -> (
    None
):
    story = Story(5, rolling(0, 3), ready=False)
    story.edit()
    story.turns((5, 0), (0, 5))
    story.ready()
    story.world.now = START + 100
    story.edit("agent:3", minReadySeconds=15)
    story.turns((3, 0))
    with_new = [pod.node for pod in story.world.parsed() if not pod.ready]
    without_new = sorted(set(story.on.values()) - set(with_new))
    story.ready(*with_new[:2])
    story.ready(without_new[0], ready=False)
    story.world.now = START + 110
    story.turns((1, 0))
    story.world.now = START + 120
    story.turns((0, 3), (1, 0))
    story.ready(old=False)
    story.world.now = START + 140
    story.turns((0, 2), (0, 0))


@pytest.mark.parametrize("strategy", [rolling(3), rolling(0, 3), {"type": "OnDelete"}])
def test_another_strategy_alone_moves_nothing(strategy: dict[str, Any]) -> None:
    story = Story(5, rolling(), ready=False)
    story.world.body["spec"]["updateStrategy"] = strategy
    story.turns((0, 0))


def test_on_delete_only_deleted_pods_are_replaced_by_new_ones() -> None:
    story = Story(3, {"type": "OnDelete"})
    story.edit()
    story.turns((0, 0))
    story.world.vanish(next(iter(story.on)))
    story.turns((1, 0), (0, 0))
    assert sorted(image for images in story.world.images().values() for image in images) == [
        "agent:1",
        "agent:1",
        "agent:2",
    ]


def test_after_a_change_of_strategy_the_rollout_continues_with_the_new_one() -> None:
    story = Story(4, rolling(1))
    story.edit()
    story.turns((0, 1), (1, 0))
    story.world.body["spec"]["updateStrategy"] = {"type": "OnDelete"}
    story.ready()
    story.turns((0, 0))
    story.world.body["spec"]["updateStrategy"] = rolling(0, "50%")
    story.turns((2, 0), (0, 0))
    story.ready()
    story.turns((0, 2), (1, 0))
