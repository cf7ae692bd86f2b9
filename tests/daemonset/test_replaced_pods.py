"""Which old pods a rolling update without surge deletes, by the state of each node."""

from __future__ import annotations

import pytest

from gitops_ds.daemonset import decide, rolling_update
from gitops_ds.model.daemonset import Pod
from tests.daemonset.world import World, daemonset, node


def world_of(letters: str) -> World:
    """A node for each letter, with a new or old pod in a state.

    Capital letters are pods that are available, `n` and `o` ready ones that are not available yet,
    `x` and `b` broken ones; `-` is a node without a pod, `E` one that needs none, `2` one with two
    old pods.
    """
    body = daemonset(updateStrategy={"type": "OnDelete"}, minReadySeconds=30)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "all"}
    pools = ["none" if one == "E" else "all" for one in letters]
    nodes = [node(f"node-{index}", {"pool": pool}) for index, pool in enumerate(pools)]
    world = World(body, nodes)
    world.settle()
    world.edit("agent:2")
    world.turn()
    for pod in world.parsed():
        if letters[number(pod)] in "Nnx-":
            world.vanish(pod.name)
    world.settle()
    world.now += 100
    for pod in world.parsed():
        letter = letters[number(pod)]
        if letter == "-":
            world.vanish(pod.name)
        elif letter in "noxb":
            world.start(world.pods[pod.name], ready=letter in "no")
        elif letter == "2":
            again = dict(world.pods[pod.name])
            again["metadata"] = {**again["metadata"], "name": f"{pod.name}-2"}
            world.add_pod(again)
    return world


def number(pod: Pod) -> int:
    return int(pod.node.removeprefix("node-"))


@pytest.mark.parametrize(
    ("letters", "most", "deleted"),
    [
        ("OOO", 1, "0"),
        ("OOO", 2, "01"),
        ("NOO", 1, "1"),
        ("NOO", 3, "12"),
        ("nOO", 1, ""),  # the new one is not available yet
        ("nOO", 2, "1"),
        ("xOO", 1, ""),
        ("xOO", 2, "1"),
        ("bOO", 1, "0"),  # a broken one is no loss, but its node counts
        ("bOO", 2, "01"),
        ("bbO", 2, "01"),
        ("oOO", 1, "0"),  # a ready one goes while fewer nodes than that have no ready pod
        ("ooO", 1, "0"),
        ("ooO", 2, "01"),
        ("oxO", 1, ""),
        ("oxO", 2, "0"),
        ("obO", 1, "1"),
        ("obO", 2, "01"),
        ("onO", 1, "0"),
        ("onO", 3, "02"),
        ("-OO", 1, ""),
        ("-OO", 2, "1"),
        ("-oO", 1, ""),
        ("-oO", 2, "1"),
        ("EOO", 1, "1"),  # it needs no pod
        ("EoO", 1, "1"),
        ("2OO", 1, ""),  # the surplus pod goes first
        ("2OO", 2, "1"),
        ("2oO", 1, ""),
    ],
)
def test_the_nodes_without_an_available_pod_are_limited(
    letters: str, most: int, deleted: str
) -> None:
    layout = decide.layout(world_of(letters).observe())
    changes = rolling_update._replace(layout, most)
    assert "".join(one.node.removeprefix("node-") for one in changes.deletes) == deleted
