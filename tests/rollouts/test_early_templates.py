"""Rollouts whose DaemonSet gets the template before the end, nodes that join meanwhile, and which
platforms are proved.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.decision import PromoteRevision, RecordRollout
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import (
    NodeProgress,
    NodeStep,
    RolloutRecord,
    StageState,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.decisions import node_selection
from gitops_ds.rollouts.decisions.failures import AttributedNodes
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes
from gitops_ds.rollouts.state import keys, target_revisions
from tests.daemonset.world import node
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both
from tests.rollouts.test_stages import FAST

LATE: dict[str, Any] = {
    "stages": [
        {"name": "canary", "nodes": {"count": 2}, "soak": "60s"},
        {"name": "middle", "nodes": {"count": 5}, "soak": "10s"},
        {"name": "rest", "soak": "300s", "pace": {"start": 1, "factor": 1}},
    ],
    "limits": {"atRisk": {"cluster": "20%"}},
    "template": {"commit": "late"},
}


def image(world: RolloutWorld) -> str:
    """The image of the DaemonSet's own template."""
    return str(world.body["spec"]["template"]["spec"]["containers"][0]["image"])


def joined(world: RolloutWorld, name: str) -> dict[str, Any]:
    """A node that is created now."""
    body = node(name, {"topology.kubernetes.io/zone": "zone-2"})
    body["metadata"]["creationTimestamp"] = timestamps.text(world.now)
    return body


def until_early(world: RolloutWorld) -> None:
    """Rounds until the DaemonSet has the target while nodes are left."""
    for _ in range(400):
        world.pass_time()
        if image(world) == SECOND:
            return
    raise AssertionError(world.last)


@both
def test_the_record_of_an_early_rollout_that_is_replaced_keeps_nothing(owned: bool) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    until_early(world)
    (early,) = (one for one in world.observe().revisions if target_revisions.record_in(one).early)
    world.commit("agent:3")
    staged = world.staged_turn()
    assert staged is not None
    records = [one for one in staged.decision.actions if isinstance(one, RecordRollout)]
    assert [one.why for one in records if one.key.name == early.name] == [
        "its rollout was replaced"
    ]
    (after,) = (one for one in world.observe().revisions if one.name == early.name)
    assert target_revisions.record_in(after) == RolloutRecord()


@both
def test_the_template_is_written_after_half_of_the_nodes_and_the_rest_keeps_its_stages(
    owned: bool,
) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    until_early(world)
    assert 5 < len(world.on(SECOND)) < 10
    world.pass_time()
    assert world.stages.stages[-1].state is not StageState.PASSED
    uids = {body["metadata"]["uid"] for body in world.pods.values()}
    for _ in range(20):  # one node of the last stage at a time, for its soak
        before = len(world.on(SECOND))
        world.pass_time()
        assert len(world.on(SECOND)) <= before + 1
    assert len(world.on(SECOND)) < 10
    world.run()
    assert len(world.on(SECOND)) == 10
    assert keys.TARGET not in world.body["metadata"]["annotations"]
    assert world.body["status"]["updatedNumberScheduled"] == 10
    kept = uids & {body["metadata"]["uid"] for body in world.pods.values()}
    assert len(kept) >= 6
    assert world.most_at_risk <= 2
    assert world.numbers() == [1, 2]


@both
def test_the_target_is_promoted_with_most_nodes_and_proved_with_all(owned: bool) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    found = list[tuple[str, bool]]()
    while keys.TARGET in world.body["metadata"]["annotations"]:
        world.pass_time()
        assert world.last is not None
        found += [
            (one.why, bool(one.proof))
            for one in world.last.decision.actions
            if isinstance(one, PromoteRevision)
        ]
    assert found == [("most nodes are updated", False), ("the rollout is complete", True)]


@both
def test_the_record_of_an_early_template_stays_until_the_proof_is_written(owned: bool) -> None:
    """It is written before the proof; a deployer that reads it in between keeps the template."""
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    until_early(world)
    while not world.stages.complete:
        assert world.stages.record.early
        world.pass_time()
    assert world.stages.record.early


@both
def test_nodes_that_join_after_the_early_template_get_it_and_are_at_risk(owned: bool) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    until_early(world)
    world.pass_time()
    world.nodes += [joined(world, f"new-{i}") for i in range(4)]
    before = len(world.on(SECOND))
    for _ in range(4):
        world.pass_time(1)
    assert {f"new-{i}" for i in range(4)} <= world.on(SECOND)
    assert world.stages.at_risk >= 4
    for _ in range(10):  # above the cap no further node is taken
        world.pass_time()
        assert len(world.on(SECOND)) <= before + 4
    world.run()
    assert len(world.on(SECOND)) == 14


@both
def test_a_revert_of_an_early_template_brings_every_touched_node_back(owned: bool) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    until_early(world)
    world.pass_time()
    untouched = {
        name
        for name, body in world.pods.items()
        if body["spec"]["containers"][0]["image"] == "agent:1"
    }
    world.commit("agent:1")
    world.run()
    assert len(world.on("agent:1")) == 10
    assert untouched <= set(world.pods)
    world.commit(SECOND)  # begins at the canary again
    for _ in range(8):
        world.pass_time()
        assert image(world) == "agent:1"
        assert len(world.on(SECOND)) <= 2
    world.run()
    assert len(world.on(SECOND)) == 10
    assert keys.TARGET not in world.body["metadata"]["annotations"]


@both
def test_a_failure_after_the_early_template_halts(owned: bool) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    until_early(world)
    world.bad_images.add(SECOND)
    world.nodes += [joined(world, f"new-{i}") for i in range(3)]
    before = len(world.on(SECOND)) + 3
    for _ in range(100):
        world.pass_time()
        assert len(world.on(SECOND)) <= before + 1
    assert world.stages.halt is not None or world.stages.hold is not None
    assert len(world.on("agent:1")) >= 1


@both
@pytest.mark.parametrize("at_most", range(4))
def test_a_process_that_is_killed_around_the_early_template_continues(
    at_most: int, owned: bool
) -> None:
    world = RolloutWorld(LATE, 10, owned=owned)
    world.commit(SECOND)
    for number in range(400):
        world.one_turn(at_most if number % 2 == 0 else None)
        if number % 3 == 0:
            world.deploy()
        world.kubelets()
        world.now += 4
    world.run()
    assert len(world.on(SECOND)) == 10
    assert keys.TARGET not in world.body["metadata"]["annotations"]


def test_a_platform_without_a_proved_node_keeps_the_proven_template() -> None:
    platforms = [{"kubernetes.io/arch": "arm64" if i == 9 else "amd64"} for i in range(10)]
    world = RolloutWorld(LATE, [node(f"node-{i:03}", platforms[i]) for i in range(10)])
    world.commit(SECOND)
    for _ in range(1000):
        world.pass_time()
        if len(world.on(SECOND)) == 10:
            break
        assert image(world) == "agent:1"
    world.run()
    assert image(world) == SECOND


JOINS: dict[str, Any] = {
    "stages": [
        {"name": "canary", "nodes": {"count": 2}, "soak": "60s"},
        {"name": "rest", "soak": "10s", "approval": {"from": ["team"]}},
    ],
    "limits": {"atRisk": {"cluster": "40%"}},
}


@both
@pytest.mark.parametrize(
    ("new_nodes", "in_canary", "later"),
    [
        ({}, 0, 0),
        ({"get": "target"}, 3, 3),
        ({"get": "stable", "until": "every-variant-proved"}, 0, 3),
    ],
)
def test_nodes_that_join_get_the_target_when_the_policy_permits(
    new_nodes: dict[str, Any], in_canary: int, later: int, owned: bool
) -> None:
    world = RolloutWorld({**JOINS, "newNodes": new_nodes}, 10, owned=owned)
    world.commit(SECOND)
    world.pass_time()
    world.pass_time()
    world.nodes += [joined(world, f"new-{i}") for i in range(3)]
    for _ in range(6):
        world.pass_time()
    assert sum(1 for name in world.on(SECOND) if name.startswith("new")) == in_canary
    assert world.most_at_risk <= 6
    for _ in range(60):
        world.pass_time()
    on = world.on(SECOND)
    assert sum(1 for name in on if name.startswith("new")) == later
    assert 2 <= len(on) <= 2 + later  # the rest waits for its approval


def test_nodes_that_join_in_a_freeze_get_the_proven_template() -> None:
    freeze = [{"from": "1970-01-01", "to": "2100-01-01"}]
    policy = {**JOINS, "newNodes": {"get": "target"}}
    world = RolloutWorld(policy, 10)
    world.commit(SECOND)
    world.pass_time()
    world.pass_time()
    world.policy = rollout_policy.decode({**policy, "freeze": freeze})
    world.nodes += [joined(world, f"new-{i}") for i in range(3)]
    for _ in range(6):
        world.pass_time()
    assert not [name for name in world.on(SECOND) if name.startswith("new")]


STEPS = {
    "W": NodeStep.WAITING,
    "P": NodeStep.PROVED,
    "S": NodeStep.SOAKING,
    "N": NodeStep.SET_ASIDE,
    "B": NodeStep.PARKED,
}


@pytest.mark.parametrize(
    ("amd", "arm", "proved"),
    [
        ("P", "P", True),
        ("PW", "P", True),
        ("P", "W", False),
        ("P", "S", False),
        ("W", "W", False),
        ("P", "", True),
        ("P", "B", True),  # no node of it can be proved
        ("P", "N", True),
        ("P", "NW", False),
        ("P", "-", True),  # the rollout has no node of it
        ("B", "N", False),
    ],
)
def test_every_platform_with_a_healthy_node_has_a_proved_one(
    amd: str, arm: str, proved: bool
) -> None:
    letters = {
        f"{arch}-{index}": (arch, letter)
        for arch, some in (("amd64", amd), ("arm64", arm))
        for index, letter in enumerate(some)
    }
    nodes = [node(name, {"kubernetes.io/arch": arch}) for name, (arch, _) in letters.items()]
    world = RolloutWorld(FAST, nodes)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    fleet = StagedNodes.of(decide.layout(world.observe()), inputs)
    progress = {
        name: NodeProgress(name, "canary", STEPS[letter])
        for name, (_, letter) in letters.items()
        if letter in STEPS
    }
    fleet = replace(fleet, attributed=AttributedNodes(progress))
    assert node_selection.every_platform_is_proved(fleet) is proved
