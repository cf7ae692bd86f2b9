"""The free capacity of nodes, by watches and own new pods."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import CreatePod, Decision, FreeCapacity
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Key
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_room import NodeCapacity
from tests.daemonset import world

KEY = Key("apps", "DaemonSet", "logging", "agent")
ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


def node(name: str = "a", cpu: str = "4") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}


def pod(
    uid: str = "p", on: str = "a", phase: str = "Running", version: str = "", port: int = 80
) -> dict[str, Any]:
    container = {
        "resources": {"requests": {"cpu": "1"}},
        "ports": [{"hostPort": port, "containerPort": port}],
    }
    return {
        "metadata": {"uid": uid, "resourceVersion": version},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": phase},
    }


def room(*pods: dict[str, Any], waits: bool = True) -> NodeCapacity:
    made = NodeCapacity()
    if waits:
        made.remember(KEY, Decision(unplaced={"a": "no room"}))
    made.replace(NODE, [node()], "10")
    made.replace(POD, pods, "10")
    return made


def free(capacity: NodeCapacity, on: str = "a") -> tuple[Any, int]:
    """The free processors of a node, and its number of taken ports."""
    left = capacity.free_capacity()[on]
    return left.free["cpu"], len(left.ports)


def test_each_pod_uses_its_requests_and_ports_until_it_has_ended() -> None:
    whole = free(room())[0]
    one = free(room(pod()))
    assert (one[0] < whole, one[1]) == (True, 1)
    assert whole - free(room(pod(), pod("q", port=81)))[0] == 2 * (whole - one[0])
    for phase in ("Failed", "Succeeded"):
        assert free(room(pod(phase=phase))) == (whole, 0)
    assert free(room(pod(on=""))) == (whole, 0)


@pytest.mark.parametrize("how", ["deleted", "ended"])
def test_the_end_of_a_pod_frees_its_capacity_once_and_queues_waiting_daemonsets(how: str) -> None:
    capacity = room(pod())
    whole = free(room())
    type, body = (DELETED, pod()) if how == "deleted" else (MODIFIED, pod(phase="Succeeded"))
    assert free(capacity) != whole
    assert capacity.apply(POD, type, body, "11") == {KEY}
    assert free(capacity) == whole
    assert capacity.apply(POD, type, body, "12") == set()


def test_a_new_pod_takes_capacity_and_queues_nothing() -> None:
    capacity = room()
    whole = free(capacity)
    assert capacity.apply(POD, ADDED, pod(), "11") == set()
    taken = free(capacity)
    assert taken != whole
    assert capacity.apply(POD, MODIFIED, pod(), "12") == set()
    assert free(capacity) == taken
    assert capacity.apply(POD, EventType.BOOKMARK, {}, "13") == set()
    assert capacity.apply(DAEMONSET, DELETED, pod(), "13") == set()
    assert free(capacity) == taken


def test_a_node_that_changes_its_capacity_wakes_who_waits() -> None:
    capacity = room()
    before = free(capacity)[0]
    assert capacity.apply(NODE, MODIFIED, node(), "11") == set()
    assert capacity.apply(NODE, MODIFIED, node(cpu="8"), "12") == {KEY}
    assert free(capacity)[0] == 2 * before
    assert capacity.apply(NODE, DELETED, node(cpu="8"), "13") == set()
    assert not capacity.free_capacity()
    assert capacity.apply(NODE, ADDED, node(), "14") == {KEY}
    assert free(capacity)[0] == before


def test_a_list_replaces_all_pods_and_queues_waiting_daemonsets() -> None:
    capacity = room(pod())
    assert capacity.replace(POD, [], "20") == {KEY}
    assert free(capacity) == free(room())
    assert capacity.replace(NODE, [node("b")], "20") == {KEY}
    assert capacity.free_capacity().keys() == {"b"}


def test_a_daemonset_with_capacity_no_longer_waits() -> None:
    capacity = room()
    capacity.remember(KEY, Decision())
    assert capacity.replace(POD, [], "20") == set()


@pytest.mark.parametrize(("version", "counts"), [("11", True), ("10", False), ("", False)])
def test_an_own_new_pod_counts_unless_its_watch_has_passed_it(version: str, counts: bool) -> None:
    capacity = room()
    before = free(capacity)
    capacity.wrote(pod(version=version))
    assert (free(capacity) != before) == counts


def test_the_watch_passes_versions_with_its_events() -> None:
    capacity = room()
    capacity.apply(POD, ADDED, pod("q"), "15")
    capacity.apply(POD, ADDED, pod("r"), "12")
    before = free(capacity)
    capacity.wrote(pod(version="15"))
    assert free(capacity) == before
    capacity.wrote(pod(version="16"))
    assert free(capacity) != before


def placed(cpu: str, **more: Any) -> tuple[dict[str, str], list[str]]:
    """The node of each new pod as its spec names it, and the nodes without room."""
    body = world.daemonset()
    spec = body["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    spec |= more
    fleet = world.World(body, 3)
    fleet.turn()
    rooms = {
        "node-0": FreeCapacity({"cpu": 1000, "pods": 10_000}),
        "node-1": FreeCapacity({"cpu": 500, "pods": 10_000}),
        "node-2": FreeCapacity({"cpu": 1000, "pods": 10_000}, (("TCP", "", 80),)),
    }
    fleet.pods.clear()
    decision = decide.decide(replace(fleet.observe(), rooms=rooms))
    creates = [action for action in decision.actions if isinstance(action, CreatePod)]
    nodes = {action.node: action.body["spec"].get("nodeName", "") for action in creates}
    return nodes, sorted(decision.unplaced)


def test_with_direct_scheduling_each_pod_is_placed_on_a_node_with_capacity() -> None:
    assert placed("600m") == ({"node-0": "node-0"}, ["node-1", "node-2"])
    assert placed("500m") == ({"node-0": "node-0", "node-1": "node-1"}, ["node-2"])
    assert placed("2") == ({}, ["node-0", "node-1", "node-2"])


def test_a_template_with_its_own_scheduler_is_left_to_it() -> None:
    left = {f"node-{index}": "" for index in range(3)}
    assert placed("2", schedulerName="mine") == (left, [])
    assert placed("2", schedulerName="default-scheduler")[0] == {}
