"""The pods of DaemonSets by node, and the nodes that changed."""

from __future__ import annotations

import random

from gitops_ds.daemonset.indexes import PodsByNode
from gitops_ds.model.daemonset import Owner, Pod

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
