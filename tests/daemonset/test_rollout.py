"""What a rollout promises: its budget holds, it ends, it needs no more restarts than it must, and a
crash does not matter.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core import names
from gitops_ds.core.daemonset import RollingUpdate
from gitops_ds.core.decision import CreatePod, DeletePod
from gitops_ds.kube.apimachinery import daemonsets, pods
from tests import profiles
from tests.daemonset.world import World, daemonset, rolling

SLOWLY = settings(max_examples=profiles.examples(60), deadline=None)


def settled(nodes: int, strategy: dict[str, Any], **spec: Any) -> World:
    world = World(daemonset(updateStrategy=strategy, **spec), nodes)
    world.settle()
    return world


def unready(world: World, *nodes: str) -> None:
    for pod in world.parsed():
        if pod.node in nodes:
            world.start(world.pods[pod.name], ready=False)


def limits(world: World) -> tuple[int, int]:
    strategy = daemonsets.strategy(world.body["spec"])
    assert isinstance(strategy, RollingUpdate)
    return daemonsets.limits(strategy, len(world.nodes))


@pytest.mark.parametrize(
    ("unavailable", "surge", "nodes", "expected"),
    [
        (1, 0, 5, (1, 0)),
        (0, 0, 2, (1, 0)),
        (0, 0, 0, (0, 0)),
        ("50%", 0, 2, (1, 0)),
        ("50%", 0, 3, (2, 0)),
        (0, "50%", 2, (0, 1)),
        (0, "100%", 2, (0, 2)),
        ("1%", 0, 5, (1, 0)),
    ],
)
def test_per_cent_is_rounded_up_and_nothing_at_all_means_one(
    unavailable: int | str, surge: int | str, nodes: int, expected: tuple[int, int]
) -> None:
    strategy = daemonsets.strategy({"updateStrategy": rolling(unavailable, surge)})
    assert isinstance(strategy, RollingUpdate)
    assert daemonsets.limits(strategy, nodes) == expected


@SLOWLY
@given(
    nodes=st.integers(1, 12),
    unavailable=st.one_of(st.integers(1, 4), st.sampled_from(["10%", "34%", "100%"])),
    min_ready=st.sampled_from([0, 3]),
    surge=st.booleans(),
)
def test_a_rollout_keeps_its_budget_and_ends(
    nodes: int, unavailable: int | str, min_ready: int, surge: bool
) -> None:
    strategy = rolling(0, unavailable) if surge else rolling(unavailable)
    world = settled(nodes, strategy, minReadySeconds=min_ready)
    world.now += min_ready
    world.edit("agent:2")
    max_unavailable, max_surge = limits(world)
    for _ in range(20 * nodes * (min_ready + 1)):
        world.turn()
        assert nodes - world.available() <= max_unavailable
        images = world.images()
        assert sum(len(there) - 1 for there in images.values()) <= max_surge
        assert all(len(set(there)) == len(there) for there in images.values()), (
            "two pods of one revision on a node"
        )
        if (
            set(map(tuple, images.values())) == {("agent:2",)}
            and len(images) == nodes
            and world.available() == nodes
        ):
            break
        world.kubelets()
    else:
        pytest.fail(f"not done: {world.images()}")
    world.settle()
    assert world.numbers() == [1, 2]


@SLOWLY
@given(data=st.data(), nodes=st.integers(1, 6), surge=st.booleans())
def test_after_any_prefix_of_actions_and_a_crash_it_still_converges(
    data: st.DataObject, nodes: int, surge: bool
) -> None:
    world = World(daemonset(updateStrategy=rolling(0, 2) if surge else rolling(2)), nodes)
    for image in ("agent:2", "agent:3", "agent:2"):
        world.edit(image)
        for _ in range(data.draw(st.integers(0, 6))):
            world.turn(at_most=data.draw(st.integers(0, 5)))
            if data.draw(st.booleans()):
                world.kubelets()
    world.settle()
    assert world.images() == {f"node-{i}": ["agent:2"] for i in range(nodes)}
    assert len(world.numbers()) == len(set(world.numbers()))


@pytest.mark.parametrize("strategy", [rolling(2), rolling(0, 2)], ids=["unavailable", "surge"])
def test_the_node_of_the_controller_is_updated_last(strategy: dict[str, Any]) -> None:
    world = settled(7, strategy)
    world.own_node = "node-0"
    world.edit("agent:2")
    moved: list[str] = []
    for _ in range(60):
        moved += [
            action.node
            for action in world.turn().actions
            if isinstance(action, CreatePod | DeletePod)
        ]
        world.kubelets()
    others = {f"node-{number}" for number in range(1, 7)}
    assert others == set(moved[: moved.index("node-0")])
    assert {pods.pod_of(pod).node for pod in world.pods.values()} == {"node-0", *others}


def test_a_bad_image_stops_at_the_budget_and_the_rollback_restarts_only_updated_pods() -> None:
    world = settled(5, rolling(2))
    world.bad_images = {"agent:bad"}
    before = {pod.name for pod in world.parsed()}
    world.edit("agent:bad")
    world.settle()
    assert (
        sorted(image for there in world.images().values() for image in there).count("agent:bad")
        == 2
    )
    world.edit("agent:1")
    world.settle()
    untouched = {pod.name for pod in world.parsed()} & before
    assert len(untouched) == 3
    assert world.numbers() == [2, 3]


def test_the_end_of_min_ready_seconds_is_scheduled() -> None:
    world = World(daemonset(minReadySeconds=30), 1)
    world.turn()
    world.kubelets()
    assert world.turn().wake_after == 30
    world.now += 30
    assert world.turn().wake_after is None
    assert world.body["status"]["numberAvailable"] == 1


@pytest.mark.parametrize("strategy", [rolling("50%"), rolling(0, 1)])
def test_a_suspended_rollout_pauses_at_any_step_repairs_nodes_and_resumes(
    strategy: dict[str, Any],
) -> None:
    world = settled(4, strategy)
    world.edit("agent:2")
    while ["agent:2"] not in world.images().values():
        world.turn()
        world.kubelets()
    world.body["metadata"]["annotations"][names.SUSPEND] = "true"
    world.settle()
    paused = world.images()
    old = [node for node, images in paused.items() if images == ["agent:1"]]
    assert old
    world.vanish(next(pod.name for pod in world.parsed() if pod.node == old[0]))
    world.settle()
    assert world.images() == {**paused, old[0]: ["agent:2"]}
    del world.body["metadata"]["annotations"][names.SUSPEND]
    world.settle()
    assert set(map(tuple, world.images().values())) == {("agent:2",)}


@pytest.mark.parametrize("back", [1.0, 19.0, 30.0, 86400.0])
def test_a_clock_set_back_deletes_no_more_pods_than_the_budget(back: float) -> None:
    world = settled(10, rolling(2), minReadySeconds=20)
    world.now += 20 - back
    world.edit("agent:2")
    assert sum(isinstance(a, DeletePod) for a in world.turn().actions) <= 2
    world.now += back
    for _ in range(200):
        world.turn()
        world.kubelets()
    assert world.images() == {f"node-{i}": ["agent:2"] for i in range(10)}


def test_a_rollback_during_a_rollout_does_not_wait_for_min_ready_seconds_of_replaced_pods() -> None:
    world = settled(3, rolling(1), minReadySeconds=600)
    world.now += 600
    world.settle()
    world.edit("agent:2")
    while ["agent:2"] not in world.images().values():
        world.turn()
        world.kubelets()
    world.kubelets()
    world.edit("agent:1")
    before = world.now
    while ["agent:2"] in world.images().values():
        world.turn()
        world.kubelets()
        assert world.now < before + 10
