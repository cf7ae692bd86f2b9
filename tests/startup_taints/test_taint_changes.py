"""The patches of nodes, and the taints that `continuous` adds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core.live import Taint
from gitops_ds.core.startup_taints import OWN, TaintChange
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import nodes, patches
from gitops_ds.startup_taints import node_waits, taint_changes
from gitops_ds.startup_taints.node_waits import NodeState, Surroundings
from gitops_ds.startup_taints.required_agents import PodTemplates
from gitops_ds.startup_taints.taint_changes import Unready
from tests import profiles
from tests.startup_taints.plain import (
    CILIUM,
    CONTINUOUS,
    GPU,
    START,
    agent,
    key,
    node,
    pod,
    state,
    templates,
)

OTHER = Taint("a", "NoSchedule")
KINDS = [OWN, CILIUM, GPU, OTHER, Taint(OWN.key, "NoExecute")]


def body(taints: list[Taint], uid: str = "uid-n1") -> dict[str, Any]:
    written = [{"key": taint.key, "effect": taint.effect, "value": taint.value} for taint in taints]
    spec: dict[str, Any] = {"taints": written} if written else {}
    return {"metadata": {"name": "n1", "uid": uid, "resourceVersion": "7"}, "spec": spec}


def patched(change: TaintChange, live: dict[str, Any]) -> tuple[Taint, ...]:
    return nodes.node_of(patches.apply_json_patch(live, taint_changes.removal_patch(change))).taints


taints = st.lists(st.sampled_from(KINDS), unique=True, max_size=5)


@settings(max_examples=profiles.examples(200), deadline=None)
@given(seen=taints, live=taints, uid=st.sampled_from(["uid-n1", "other"]))
def test_a_removal_removes_startup_taints_and_nothing_else_or_fails(
    seen: list[Taint], live: list[Taint], uid: str
) -> None:
    shown = state(replace(node(), taints=tuple(seen)), pod())
    change = taint_changes.removal(shown)
    if change is None:
        assert not {OWN, CILIUM} & set(seen)
        return
    try:
        left = patched(change, body(live, uid))
    except patches.PatchFailed:
        assert uid != "uid-n1" or live != seen
        return
    assert uid == "uid-n1"
    assert [one for one in live if one not in (OWN, CILIUM)] == [
        one for one in left if one not in (OWN, CILIUM)
    ]
    assert not {OWN, CILIUM} & set(seen) & set(left)


@settings(max_examples=profiles.examples(200), deadline=None)
@given(seen=taints, read=taints, live=taints)
def test_an_addition_adds_our_taint_once_or_not_at_all(
    seen: list[Taint], read: list[Taint], live: list[Taint]
) -> None:
    """`live` are the taints at the time of the patch, after those that were read."""
    seen = [one for one in seen if one != OWN]
    change = TaintChange("n1", "uid-n1", tuple(seen), added=OWN)
    patch = taint_changes.addition_patch(change, body(read))
    assert (patch is None) is (seen != read)
    if patch is None:
        return
    there = body(live)
    there["metadata"]["resourceVersion"] = "7" if live == read else "8"
    try:
        left = nodes.node_of(patches.apply_json_patch(there, patch)).taints
    except patches.PatchFailed:
        assert live != read
        return
    assert live == read
    assert left == (*live, OWN)


def test_a_taint_that_another_client_removed_meanwhile_is_a_conflict() -> None:
    change = taint_changes.removal(state(node("n1", CILIUM, OWN), pod()))
    assert change is not None
    with pytest.raises(patches.PatchFailed):
        patched(change, body([OWN]))


def unready(
    count: int, of: int = 100, since: float = START
) -> tuple[dict[str, NodeState], Unready]:
    """That many of the nodes have an agent that is not ready since a time; no node is tainted."""
    names = [f"n{number:03}" for number in range(of)]
    states = {
        name: state_without_taint(name, well=number >= count) for number, name in enumerate(names)
    }
    times = {name: {key("a"): since} for name in names[:count]}
    return states, Unready(times)


def state_without_taint(name: str, well: bool, **fields: Any) -> NodeState:
    around = Surroundings(CONTINUOUS, (agent(),), START + 60)
    there = replace(node(name), taints=(), **fields)
    return node_waits.state_of(there, [pod(on=name, ready=well)], around)


def tainted(states: dict[str, NodeState], unready: Unready, after: float = 120.0) -> list[str]:
    changes = taint_changes.additions(states, unready, CONTINUOUS, START + after)
    assert all(change.added == OWN and not change.removed for change in changes)
    return [change.node for change in changes]


def test_a_node_gets_the_taint_after_the_stated_time() -> None:
    states, times = unready(1)
    assert tainted(states, times, after=119) == []
    assert tainted(states, times, after=120) == ["n000"]


@pytest.mark.parametrize(("count", "expected"), [(10, 10), (11, 0), (100, 0)])
def test_an_agent_that_is_not_ready_on_many_nodes_is_left_to_its_rollout(
    count: int, expected: int
) -> None:
    assert len(tainted(*unready(count))) == expected


def test_the_nodes_with_the_taint_count_towards_the_maximum() -> None:
    states, times = unready(10)
    for name in ("n090", "n091", "n092"):
        states[name] = replace(states[name], node=replace(states[name].node, taints=(OWN,)))
    assert len(tainted(states, times)) == 7
    assert len(tainted(states, replace(times, pending={"n000", "n001"}))) == 5


def test_a_ready_pod_causes_no_taint_before_its_min_ready_seconds_are_over() -> None:
    states, times = unready(1)
    around = Surroundings(CONTINUOUS, (agent(min_ready=600),), START + 200)
    young = replace(states["n000"].node, taints=())
    states["n000"] = node_waits.state_of(young, [pod(on="n000")], around)
    assert [wait.reason for wait in states["n000"].waits] == ["MinReadySeconds"]
    assert tainted(states, times, after=200) == []


@pytest.mark.parametrize(
    ("before", "after", "added", "made"),
    [
        ([OWN, GPU], [GPU], None, True),
        ([OWN, GPU], [GPU, OWN], None, False),
        ([OWN], [Taint(OWN.key, OWN.effect, "value")], None, False),
        ([OWN], [Taint(OWN.key, "NoExecute")], None, True),
        ([GPU], [GPU, OWN], OWN, True),
        ([GPU], [GPU], OWN, False),
    ],
)
def test_an_admission_webhook_may_revert_a_change(
    before: list[Taint], after: list[Taint], added: Taint | None, made: bool
) -> None:
    change = TaintChange("n1", "uid-n1", tuple(before), () if added else (0,), added)
    assert taint_changes.is_made(change, nodes.node_of(body(after))) is made


def test_the_longest_wait_comes_first() -> None:
    states, times = unready(10)
    since = {**times.since, "n009": {key("a"): START - 50}}
    states["n099"] = replace(states["n099"], node=replace(states["n099"].node, taints=(OWN,)))
    assert tainted(states, Unready(since))[0] == "n009"
    assert len(tainted(states, Unready(since))) == 9


@pytest.mark.parametrize("fields", [{"ready": False}, {"deleting": True}])
def test_a_node_with_a_fault_of_its_own_gets_no_taint(fields: dict[str, bool]) -> None:
    states, times = unready(1)
    states["n000"] = state_without_taint("n000", well=False, **fields)
    assert tainted(states, times) == []


@pytest.mark.parametrize(
    ("share", "total", "most"),
    [(0.1, 1, 0), (0.1, 9, 0), (0.1, 10, 1), (0.1, 30, 3), (0.29, 100, 29), (0.57, 100, 57)],
)
def test_the_share_of_nodes_is_rounded_down(share: float, total: int, most: int) -> None:
    assert replace(CONTINUOUS, share=share).most(total) == most


def test_small_clusters_get_no_taint() -> None:
    assert tainted(*unready(1, of=9)) == []


def follow(pod_hash: str, counted: PodTemplates, **fields: Any) -> dict[Any, float]:
    around = Surroundings(CONTINUOUS, (agent(templates=counted),), START + 60)
    there = replace(node(), taints=())
    pods = [pod(**{"ready": False, "hash": pod_hash, **fields})]
    shown = node_waits.state_of(there, pods, around)
    return dict(taint_changes.follow({key("a"): START}, shown, pods, around))


def test_the_time_begins_again_with_each_new_pod() -> None:
    assert follow("1", templates(), created=START - 5) == {key("a"): START}
    assert follow("1", templates(), created=START + 40) == {key("a"): START + 40}


def test_the_time_begins_again_when_the_node_becomes_ready() -> None:
    around = Surroundings(CONTINUOUS, (agent(),), START + 999)
    there = replace(node(), taints=(), ready_since=START + 990)
    shown = node_waits.state_of(there, [pod(ready=False)], around)
    since = taint_changes.follow({key("a"): START}, shown, [], around)
    assert since == {key("a"): START + 990}


def test_a_rollout_in_progress_and_a_stuck_agent_cause_no_taint() -> None:
    staged = templates("1", pinned="2")
    assert follow("2", staged, created=START - 5) == {}
    assert follow("1", staged, created=START - 5) == {key("a"): START}
    assert follow("1", templates(note="it is suspended", stuck=True)) == {}


def test_a_ready_pod_that_a_rollback_or_a_parked_node_still_has_causes_no_taint() -> None:
    proven = templates("1")
    assert follow("2", proven, created=START - 5, ready=True) == {}
    assert follow("2", proven, created=START - 5) == {key("a"): START}
