"""The nodes with pods of no DaemonSet, the pods of DaemonSets by node, and the rollouts."""

from __future__ import annotations

import random
from typing import Any

from gitops_ds.core.cluster import EventType
from gitops_ds.core.daemonset import Owner, Pod
from gitops_ds.core.objects import DAEMONSET, NODE, POD
from gitops_ds.core.values import replace
from gitops_ds.daemonset.cache import Cache
from gitops_ds.daemonset.indexes import BusyNodes, PodsByNode, first_bound
from gitops_ds.kube.apimachinery import pods
from tests.daemonset.world import daemonset, node


def test_a_list_of_the_cache_gives_the_busy_nodes_and_the_pods_of_daemonsets() -> None:
    cache = Cache()
    cache.by_node = index = PodsByNode()
    cache.replace(DAEMONSET, [daemonset()], "1")
    cache.replace(NODE, [node("a")], "1")
    bodies = [
        _pod("worker", "a", "ReplicaSet"),
        _pod("agent", "b", "DaemonSet"),
        _pod("static", "c", "Node"),
        _pod("alone", "d", ""),
        _pod("job", "e", "Job", phase="Succeeded"),
        _pod("unbound", "", "ReplicaSet"),
    ]
    cache.replace(POD, bodies, "1")
    assert cache.busy_nodes == {"a", "d"}
    assert [pod.name for pod in index.on("b")] == ["agent"]


def test_the_busy_nodes_of_the_cache_follow_its_events() -> None:
    cache = Cache()
    cache.replace(POD, [], "1")
    worker = _pod("worker", "a", "ReplicaSet")
    cache.apply(POD, EventType.ADDED, worker, "2")
    assert cache.busy_nodes == {"a"}
    cache.apply(POD, EventType.DELETED, worker, "3")
    assert cache.busy_nodes == frozenset()


def test_the_busy_nodes_follow_each_event() -> None:
    chance, known = random.Random(3), dict[str, Pod]()
    busy = BusyNodes()
    for _ in range(500):
        name = f"pod-{chance.randrange(12)}"
        before = known.pop(name, None)
        if before is None or chance.random() < 0.6:
            owner = chance.choice(("ReplicaSet", "DaemonSet", "Node", ""))
            on, phase = chance.choice("abc"), chance.choice(("Running", "Succeeded"))
            known[name] = pods.pod_of(_pod(name, chance.choice((on, "")), owner, phase))
        busy.changed(before, known.get(name))
        expected = BusyNodes()
        expected.replace(known.values())
        assert busy.names == expected.names


def _pod(name: str, on: str, owner: str, phase: str = "Running") -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": owner, "name": "x", "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "ownerReferences": [reference] if owner else [],
        },
        "spec": {"nodeName": on} if on else {},
        "status": {"phase": phase},
    }


def test_only_an_event_of_a_busy_node_replaces_the_names() -> None:
    first, second = (pods.pod_of(_pod(name, "a", "")) for name in ("one", "two"))
    busy = BusyNodes()
    busy.changed(None, first)
    busy.changed(None, second)
    found = busy.names
    assert found == {"a"}
    busy.changed(first, first)
    busy.changed(None, pods.pod_of(_pod("agent", "b", "DaemonSet")))
    assert busy.names is found
    busy.changed(first, None)
    assert busy.names == {"a"}
    busy.changed(second, None)
    assert busy.names == frozenset()


OWNERS = (Owner("DaemonSet", "agent", "d"), Owner("ReplicaSet", "web", "r"), None)
NODES = ("a", "b", "c", "")


def test_each_node_has_the_placed_pods_of_daemonsets_after_each_event() -> None:
    chance, known = random.Random(5), dict[str, Pod]()
    index = PodsByNode()
    for _ in range(500):
        uid = f"pod-{chance.randrange(12)}"
        before = known.pop(uid, None)
        if before is None or chance.random() < 0.6:
            owner, node = chance.choice(OWNERS), chance.choice(NODES)
            known[uid] = Pod("logging", uid, uid, node=node, owner=owner)
        after = known.get(uid)
        index.changed(before, after)
        agents = [one for one in known.values() if one.owner == OWNERS[0] and one.node]
        moved = [one for one in (before, after) if one and one.owner == OWNERS[0] and one.node]
        for node in "abc":
            assert {pod.uid for pod in index.on(node)} == {
                pod.uid for pod in agents if pod.node == node
            }
        assert index.take_touched() == {pod.node for pod in moved}


def test_a_new_list_touches_the_nodes_before_and_after_it() -> None:
    index = PodsByNode()
    index.replace([Pod("logging", "one", "1", node="a", owner=OWNERS[0])])
    assert index.take_touched() == {"a"}
    index.touch({"c"})
    index.replace([Pod("logging", "two", "2", node="b", owner=OWNERS[0])])
    assert index.take_touched() == {"a", "b", "c"}
    assert index.on("a") == ()
    assert [pod.name for pod in index.on("b")] == ["two"]


def test_an_equal_object_of_a_later_list_takes_no_memory() -> None:
    """The former one is kept: all pods of a cluster once more are hundreds of MiB."""
    cache = Cache()
    cache.by_node = index = PodsByNode()
    bodies = [_pod("same", "a", "DaemonSet"), _pod("changed", "a", "DaemonSet")]
    cache.replace(POD, bodies, "1")
    before = index.on("a")
    bodies[1]["status"]["phase"] = "Failed"
    cache.replace(POD, bodies, "2")
    after = index.on("a")
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False]
    assert after[1].phase == "Failed"


def test_the_first_pod_that_was_bound_since_a_time_has_not_ended() -> None:
    def placed(name: str, at: float, on: str = "a", phase: str = "Running") -> Pod:
        return replace(pods.pod_of(_pod(name, on, "", phase)), placed=at)

    since = {"a": 10.0, "b": 10.0}
    some = [placed("third", 12.0), placed("second", 11.0), placed("early", 9.0)]
    assert first_bound(some, since) == {"a": "default/second"}
    assert first_bound([placed("ended", 10.5, phase="Succeeded"), *some], since) == {
        "a": "default/second"
    }
    assert first_bound([placed("at", 10.0), placed("other", 10.0, "c")], since) == {
        "a": "default/at"
    }
    assert first_bound([placed("unbound", 0.0)], {"a": 0.0}) == {}


def test_the_pods_of_a_node_follow_the_events_of_the_cache() -> None:
    cache = Cache()
    cache.by_node = index = PodsByNode()
    cache.replace(POD, [], "1")
    agent = _pod("agent", "a", "DaemonSet")
    cache.apply(POD, EventType.ADDED, agent, "2")
    assert [pod.name for pod in index.on("a")] == ["agent"]
    cache.apply(POD, EventType.DELETED, agent, "3")
    assert [*index.on("a")] == []
