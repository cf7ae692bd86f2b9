"""What a rolling update deletes and creates, by the state of each node."""

from __future__ import annotations

import copy

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import Pod
from gitops_ds.daemonset import decide, rolling_update
from tests.daemonset.world import World, daemonset, node


def world_of(letters: str) -> World:
    """A node for each letter, with a new or old pod in a state.

    Capital letters are pods that are available, `n` and `o` ready ones that are not available yet,
    `x` and `b` broken ones; `-` is a node without a pod, `E` one that needs none, `2` one with two
    old pods, `V` one with two new ones; `K` and `k` are old pods on a node that only keeps its pod.
    `+` and `*` are nodes with a new pod, available or not, beside the old one.
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
        if letters[number(pod)] in "NVnx-":
            world.vanish(pod.name)
    world.settle()
    world.now += 100
    for pod in world.parsed():
        letter = letters[number(pod)]
        if letter == "-":
            world.vanish(pod.name)
        elif letter in "noxbk":
            world.start(world.pods[pod.name], ready=letter in "no")
        elif letter in "2V+*":
            again = copy.deepcopy(world.pods[pod.name])
            again["metadata"]["name"] = f"{pod.name}-2"
            if letter in "+*":
                labels = again["metadata"]["labels"]
                labels[names.REVISION_HASH] = decide.layout(world.observe()).hash
                labels[names.POD_TEMPLATE_GENERATION] = "2"
            if letter == "*":
                world.start(again, ready=False)
            world.add_pod(again)
    for index, letter in enumerate(letters):
        if letter in "Kk":
            taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
            world.nodes[index]["spec"]["taints"] = [taint]
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
        ("bOO", 1, "0"),  # a broken one is not a loss, but its node counts
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
        ("KOO", 1, "0"),  # it keeps its pod, which is replaced as any other
        ("kOO", 1, "0"),
        ("2OO", 1, ""),  # the surplus pod goes first
        ("2OO", 2, "1"),
        ("2oO", 1, ""),
        ("VOO", 1, ""),
        ("VOO", 2, "1"),
    ],
)
def test_the_nodes_without_an_available_pod_are_limited(
    letters: str, most: int, deleted: str
) -> None:
    layout = decide.layout(world_of(letters).observe())
    changes = rolling_update._replace(layout, most)
    assert "".join(delete.node.removeprefix("node-") for delete in changes.deletes) == deleted


@pytest.mark.parametrize(
    ("letters", "most", "created", "deleted"),
    [
        ("OOO", 1, "0", ""),
        ("OOO", 2, "01", ""),
        ("NOO", 1, "1", ""),
        ("+OO", 1, "1", "0"),  # the new one is available
        ("*OO", 1, "", ""),
        ("*OO", 2, "1", ""),
        ("2OO", 1, "", ""),  # the surplus pod goes first
        ("2OO", 2, "1", ""),
        ("VOO", 1, "", ""),
        ("VOO", 2, "1", ""),
        ("bOO", 1, "01", ""),  # the replacement of a broken one costs nothing
        ("oOO", 1, "01", ""),
        ("-OO", 1, "1", ""),
        ("EOO", 1, "1", ""),
        ("kOO", 1, "1", "0"),
        ("KOO", 1, "1", "0"),  # more are available than wanted
        ("KKO", 1, "2", "01"),
        ("KNb", 1, "2", ""),
        ("KKb", 1, "2", "0"),
    ],
)
def test_new_pods_beside_old_ones_are_limited(
    letters: str, most: int, created: str, deleted: str
) -> None:
    layout = decide.layout(world_of(letters).observe())
    changes = rolling_update._surge(layout, most)
    found = [
        "".join(one.node.removeprefix("node-") for one in some)
        for some in (changes.creates, changes.deletes)
    ]
    assert found == [created, deleted]
