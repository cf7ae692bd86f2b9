"""Reports about controllers of DaemonSets, on a world of plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core.decision import CreatePod, DeletePod
from gitops_ds.core.health import HealthState
from gitops_ds.status import health
from tests.daemonset.world import World, daemonset, node, rolling

Scene = Callable[[], None]
SCENES: dict[str, Scene] = {}


def report(*names: str) -> Callable[[Scene], Scene]:
    """The scene of these reports."""

    def add(scene: Scene) -> Scene:
        SCENES[" ".join(names)] = scene
        return scene

    return add


def settled(nodes: int = 3, **spec: Any) -> World:
    world = World(daemonset(**spec), nodes)
    world.settle()
    return world


def lowest(world: World, turns: int = 60) -> int:
    """The fewest available nodes until the world is settled."""
    fewest = world.available()
    for _ in range(turns):
        moved = bool(world.turn().actions)
        fewest = min(fewest, world.available())
        if not world.kubelets() and not moved:
            break
    return fewest


def taint(world: World, index: int, effect: str = "NoSchedule", key: str = "role") -> None:
    world.nodes[index] = node(f"node-{index}", taints=[{"key": key, "effect": effect}])


@report("kubernetes/kubernetes#48190")
def _a_taint_that_prevents_scheduling_does_not_end_a_running_pod() -> None:
    world = settled()
    taint(world, 0)
    assert world.turn().actions == ()


@report("kubernetes/kubernetes#42398", "kubernetes/kubernetes#132477", "openkruise/kruise#2358")
def _a_pod_follows_the_end_of_a_taint_and_so_does_the_count_of_misscheduled_ones() -> None:
    world = World(daemonset(), 2)
    taint(world, 0)
    world.settle()
    assert list(world.images()) == ["node-1"]
    taint(world, 1)
    world.turn()
    assert world.body["status"]["numberMisscheduled"] == 1
    world.nodes = [node("node-0"), node("node-1")]
    world.settle()
    assert list(world.images()) == ["node-0", "node-1"]
    assert world.body["status"]["numberMisscheduled"] == 0


@report("kubernetes/kubernetes#60163", "kubernetes/kubernetes#30989", "openkruise/kruise#873")
def _cordoned_and_unready_nodes_get_pods_and_updates() -> None:
    world = World(daemonset(), 3)
    taint(world, 0, key="node.kubernetes.io/unschedulable")
    taint(world, 1, "NoExecute", key="node.kubernetes.io/not-ready")
    world.settle()
    world.edit("agent:2")
    world.settle()
    assert world.images() == {f"node-{index}": ["agent:2"] for index in range(3)}


@report("kubernetes/kubernetes#22545", "openkruise/kruise#443", "kubernetes/kubernetes#76060")
def _a_pod_of_a_deleted_node_is_not_created_again_and_is_deleted_if_it_never_started() -> None:
    world = settled(2)
    world.slow_nodes = {"node-2"}
    world.nodes.append(node("node-2"))
    world.turn()
    (waiting,) = (name for name, pod in world.pods.items() if not pod["spec"].get("nodeName"))
    del world.nodes[1:]
    actions = world.turn().actions
    assert [a.key.name for a in actions if isinstance(a, DeletePod)] == [waiting]
    assert not any(isinstance(action, CreatePod) for action in actions)


@report(
    "kubernetes/kubernetes#65240", "kubernetes/kubernetes#51884", "kubernetes/kubernetes#124388"
)
def _evicted_pods_are_created_again_with_a_growing_delay_also_during_a_surge() -> None:
    world = settled(1, updateStrategy=rolling(0, 1))
    world.edit("agent:2")
    created = 0
    for _ in range(100):
        created += sum(isinstance(action, CreatePod) for action in world.turn().actions)
        world.now += 1
        for name, pod in list(world.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                world.vanish(name)
            elif pod["spec"]["containers"][0]["image"] == "agent:2":
                pod["status"] = {"phase": "Failed", "reason": "Evicted"}
    assert 2 < created < 12
    assert world.available() == 1


@report("openkruise/kruise#744")
def _a_failed_pod_does_not_stop_the_update_of_other_nodes() -> None:
    world = settled(3, updateStrategy=rolling(2))
    world.edit("agent:2")
    for _ in range(30):
        world.turn()
        world.kubelets()
        for pod in world.pods.values():
            if pod["spec"].get("nodeName") == "node-0":
                pod["status"] = {"phase": "Failed", "reason": "Evicted"}
    assert [world.images()[name] for name in ("node-1", "node-2")] == [["agent:2"]] * 2


@report("openkruise/kruise#1832", "openkruise/kruise#1812")
def _a_percentage_below_one_node_updates_one_node_at_a_time() -> None:
    world = settled(5, updateStrategy=rolling("5%"))
    world.edit("agent:2")
    assert lowest(world) == 4
    assert set(map(tuple, world.images().values())) == {("agent:2",)}


@report("openkruise/kruise#1323")
def _an_update_within_the_seconds_of_the_one_before_keeps_the_other_pods() -> None:
    world = World(daemonset(minReadySeconds=60, updateStrategy=rolling(1)), 4)
    world.settle()
    world.now += 100
    for image in ("agent:2", "agent:3", "agent:4"):
        world.edit(image)
        assert lowest(world, turns=5) >= 3


@report("openkruise/kruise#1012", "kubernetes/kubernetes#135204")
def _a_surge_ends_old_pods_after_new_ones_are_available_and_never_before() -> None:
    world = settled(4, updateStrategy=rolling(0, 2))
    world.edit("agent:2")
    assert lowest(world) == 4
    world.settle()
    assert world.images() == {f"node-{index}": ["agent:2"] for index in range(4)}


@report("kubernetes/kubernetes#79475")
def _a_pod_that_is_ending_is_not_deleted_again_and_uses_the_budget() -> None:
    world = settled(3, updateStrategy=rolling(1))
    world.edit("agent:2")
    assert [type(action) for action in world.turn().actions].count(DeletePod) == 1
    assert not any(isinstance(action, DeletePod) for action in world.turn().actions)


@report("kubernetes/kubernetes#68432")
def _two_revisions_of_one_template_do_not_replace_pods_in_turns() -> None:
    world = settled(3)
    (first,) = world.revisions.values()
    twin = {**first, "metadata": {**first["metadata"], "name": "agent-twin"}, "revision": 2}
    world.revisions["agent-twin"] = twin
    for _ in range(5):
        assert not any(isinstance(action, DeletePod) for action in world.turn().actions)


@report("kubernetes/kubernetes#48362")
def _a_template_that_fits_on_no_node_ends_no_more_pods_than_allowed() -> None:
    world = settled(4, updateStrategy=rolling(1))
    world.edit("agent:2")
    world.slow_nodes = {f"node-{index}" for index in range(4)}
    assert lowest(world) == 3


@report("argoproj/argo-cd#16951", "argoproj/argo-cd#26390")
def _fewer_nodes_and_no_node_at_all_are_healthy() -> None:
    world = settled(3)
    world.edit("agent:2")
    world.settle()
    for left in (2, 0):
        del world.nodes[left:]
        world.pods = {
            name: pod
            for name, pod in world.pods.items()
            if pod["spec"]["nodeName"] in [one["metadata"]["name"] for one in world.nodes]
        }
        world.settle()
        assert health.judge(world.observe()).state is HealthState.HEALTHY


@report("argoproj/argo-cd#1881")
def _an_update_on_delete_is_healthy_before_its_pods_are_deleted() -> None:
    world = settled(2, updateStrategy={"type": "OnDelete"})
    world.edit("agent:2")
    world.settle()
    assert health.judge(world.observe()).state is HealthState.HEALTHY
    assert set(map(tuple, world.images().values())) == {("agent:1",)}


@pytest.mark.parametrize("name", SCENES)
def test_the_controller_does_what_the_maintainers_of_the_report_decided(name: str) -> None:
    SCENES[name]()
