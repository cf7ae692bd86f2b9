"""What a line of the journal holds is what was seen and decided, regardless of its content."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops_ds.controller.journal import codec, delta
from gitops_ds.daemonset import decide
from gitops_ds.model.events.base import Decided
from gitops_ds.model.values import replace
from tests.daemonset import world
from tests.daemonset.world import World

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=4)
    ),
    max_leaves=12,
)
trees = st.dictionaries(
    st.sampled_from("abcd"), values | st.dictionaries(st.sampled_from("abcd"), values), max_size=4
)


@settings(deadline=None)
@given(trees, trees)
@example({"a": 1, "b": [1], "c": [{"d": 1}]}, {"a": True, "b": [1.0], "c": [{"d": True}]})
def test_a_delta_applied_to_the_old_tree_gives_the_new_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    change = delta.between(old, new)
    assert repr(sort(delta.applied(old, change))) == repr(sort(new))
    assert bool(change) == (repr(sort(old)) != repr(sort(new)))


def sort(tree: Any) -> Any:
    """So that the representations of equal trees are equal; 1, 1.0 and True are not, and 0.0 is
    -0.0.
    """
    if isinstance(tree, Mapping):
        return {key: sort(tree[key]) for key in sorted(tree)}
    if isinstance(tree, list):
        return list(map(sort, tree))
    return 0.0 if isinstance(tree, float) and tree == 0 else tree


STEPS = st.lists(
    st.sampled_from(
        [
            "turn",
            "crash",
            "kubelets",
            "edit",
            "undo",
            "node",
            "lose",
            "taint",
            "fail",
            "vanish",
            "strategy",
            "orphan",
        ]
    ),
    max_size=25,
)


def move(there: World, step: str, chance: random.Random) -> None:
    """One thing that happens to a world."""
    there.now += chance.choice([0, 0.25, 3, 1000])
    pods = sorted(there.pods)
    match step:
        case "turn":
            there.turn()
        case "crash":
            there.turn(at_most=chance.randrange(3))
        case "kubelets":
            there.kubelets()
        case "edit" | "undo":
            there.edit(f"agent:{chance.randrange(4) if step == 'edit' else 1}")
        case "node":
            there.nodes = [
                *there.nodes,
                world.node(f"new-{len(there.nodes)}-{chance.random()}", {"zone": "a"}),
            ]
        case "lose" if there.nodes:
            lost = chance.choice(there.nodes)
            there.nodes = [node for node in there.nodes if node is not lost]
        case "taint" if there.nodes:
            taint = {"key": "drained", "effect": chance.choice(["NoExecute", "NoSchedule"])}
            there.nodes = [
                world.node(there.nodes[0]["metadata"]["name"], taints=[taint]),
                *there.nodes[1:],
            ]
        case "fail" if pods:
            there.pods[chance.choice(pods)]["status"] = {"phase": "Failed", "reason": "Evicted"}
        case "vanish" if pods:
            there.vanish(chance.choice(pods))
        case "strategy":
            there.body = {
                **there.body,
                "spec": {
                    **there.body["spec"],
                    "updateStrategy": world.rolling("50%", 0),
                    "minReadySeconds": 2,
                },
            }
        case "orphan":
            there.existing(
                f"stray-{chance.random()}",
                "node-0",
                owned=chance.random() < 0.5,
                labels=chance.choice([None, {}]),
            )
        case _:
            pass  # nothing is there that this could happen to


@settings(deadline=None)
@given(STEPS, st.integers(0, 1000))
def test_every_reconciliation_of_a_file_is_read_back_unchanged(steps: list[str], seed: int) -> None:
    there, chance = World(world.daemonset(), 3), random.Random(seed)
    other = World(
        {
            **world.daemonset("other:1"),
            "metadata": {**world.daemonset()["metadata"], "name": "other"},
        },
        there.nodes,
    )
    writer, reader = codec.JournalWriter(), codec.Reader()
    there.own_node = "node-1"
    for step in steps:
        for one in (there, other):
            move(one, step, chance)
            # a world changes its objects in place, which no cluster does
            seen = copy.deepcopy(one.observe())
            event = Decided(
                one.now, seen.daemonset.key, decide.decide(seen), chance.random() < 0.5, seen
            )
            line, _ = writer.line(event)
            back = reader.turn(line)
            assert back.seen == event.seen
            assert codec.encoded(back.decision) == codec.encoded(event.decision)
            assert replace(back, decision=event.decision) == event
            assert decide.decide(back.seen) == back.decision


def test_unchanged_values_are_written_once() -> None:
    there = World(world.daemonset(), 100)
    there.settle()
    writer = codec.JournalWriter()
    seen = there.observe()
    event = Decided(there.now, seen.daemonset.key, decide.decide(seen), True, seen)
    first, whole = writer.line(event)
    again, whole_again = writer.line(replace(event, seen=replace(seen, now=seen.now + 1)))
    assert (whole, whole_again) == (True, False)
    assert len(again) < 300 < 20_000 < len(first)


NO_TEXT = [b"", b"{", b"[]", b"{}", b"\xff\n"]
NOTHING: dict[str, Any] = {
    "steps": [],
    "status": None,
    "wakeAfter": None,
    "backoffs": {},
    "complaint": "",
}
NO_SENSE: list[tuple[Any, Any]] = [
    ({}, NOTHING),
    ({"put": {"now": "noon"}}, NOTHING),
    ({"put": {"now": 1}}, {}),
    ({"put": {"now": 1, "pods": {"a": 3}}}, NOTHING),
    ({"put": {"now": 1}, "in": {"pods": {"put": {"a": {"name": 3}}}}}, NOTHING),
    ({"put": {"now": 1}, "in": {"pods": {"drop": ["a"]}}}, NOTHING),
    ({"put": {"now": 1}, "in": {"pods": []}}, NOTHING),
    ({"put": {"now": 1}, "in": {"revisions": {"put": {"a": {}}}}}, NOTHING),
    ({"put": {"now": 1}}, {**NOTHING, "steps": [[{"do": "DropTheCluster"}]]}),
    ({"put": {"now": 1}}, {**NOTHING, "steps": [[{"do": "DeletePod", "node": "a"}]]}),
]


def line_of(seen: Any, decided: Any) -> bytes:
    key = {"group": "apps", "kind": "DaemonSet", "namespace": "a", "name": "b"}
    return json.dumps(
        {"at": 1.0, "object": key, "performed": True, "seen": seen, "decided": decided}
    ).encode()


@pytest.mark.parametrize(
    "broken", [*NO_TEXT, *(line_of(seen, decided) for seen, decided in NO_SENSE)]
)
def test_a_line_that_means_nothing_is_broken_and_no_crash(broken: bytes) -> None:
    with pytest.raises(codec.Broken):
        codec.Reader().turn(broken)


def test_the_smallest_line_that_means_something() -> None:
    assert codec.Reader().turn(line_of({"put": {"now": 1}}, NOTHING)).seen.now == 1
