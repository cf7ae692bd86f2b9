"""Staged rollouts: stages in their order, the cap, halt and attribution, joins and evictions, and
the way back.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_ds.core import names
from gitops_ds.core.decision import DeletePod
from gitops_ds.core.rollouts.staged_rollout import NodeStep, StageState
from tests.daemonset.world import node
from tests.profiles import examples
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both

FAST: dict[str, Any] = {
    "stages": [
        {"name": "canary", "nodes": {"count": 2}, "soak": "60s"},
        {"name": "rest", "soak": "10s", "pace": {"start": 2, "factor": 2, "max": "50%"}},
    ],
    "limits": {"atRisk": {"cluster": "40%"}},
}


@both
def test_a_rollout_ends_with_every_node_updated_and_the_template_committed(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    first = world.body["spec"]["template"]
    world.commit(SECOND)
    world.pass_time()
    assert world.body["spec"]["template"] == first
    assert len(world.on(SECOND)) <= 2
    world.run()
    assert world.images() == {f"node-{i:03}": [SECOND] for i in range(10)}
    assert world.body["spec"]["template"]["spec"]["containers"][0]["image"] == SECOND
    assert world.body["status"]["updatedNumberScheduled"] == 10
    assert world.most_at_risk <= 4
    assert [revision["revision"] for revision in world.revisions.values()] == [1, 2]


@both
def test_the_rest_waits_until_the_canary_has_soaked(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.commit(SECOND)
    began = world.now
    while world.now - began < 55:
        world.pass_time()
        assert len(world.on(SECOND)) <= 2
    assert [stage.state for stage in world.stages.stages] == [
        StageState.OPEN,
        StageState.PENDING,
    ]
    world.run()
    assert len(world.on(SECOND)) == 10


@both
def test_a_bad_template_is_halted_in_the_canary_and_stays_so(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    for _ in range(300):
        world.pass_time()
        assert len(world.on(SECOND)) <= 2
    halt = world.stages.halt
    assert halt is not None
    assert halt.stage == "canary"
    assert "ImagePullBackOff" in halt.message
    world.bad_images.clear()
    for _ in range(50):
        world.pass_time()
    assert len(world.on(SECOND)) <= 2


@both
def test_a_revert_brings_exactly_the_touched_nodes_back(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    for _ in range(60):
        world.pass_time()
    before = {
        name
        for name in world.pods
        if world.pods[name]["spec"]["containers"][0]["image"] == "agent:1"
    }
    world.commit("agent:1")
    world.run()
    assert world.images() == {f"node-{i:03}": ["agent:1"] for i in range(10)}
    assert before <= set(world.pods)
    assert world.numbers() == [1]


@both
@pytest.mark.parametrize(("tag", "most"), [("2", 4), ("3", 10)])
def test_only_pods_that_are_known_to_run_another_template_are_returned_at_once(
    owned: bool, tag: str, most: int
) -> None:
    """Pinned pods with the hash of no revision, with the proven containers or with other ones."""
    world = RolloutWorld(FAST, 10, owned=owned)
    world.commit(SECOND)
    world.run()
    for body in world.pods.values():
        body["metadata"]["labels"][names.REVISION_HASH] = "deleted"
        body["spec"]["containers"][0]["image"] = f"agent:{tag}"
    world.now += 60.0
    decided = world.one_turn()
    assert decided is not None
    deleted = [action for action in decided.decision.actions if isinstance(action, DeletePod)]
    assert 0 < len(deleted) <= most
    assert (len(deleted) == 10) is (most == 10)


@both
def test_nodes_that_join_and_pods_that_are_evicted_get_the_proven_template(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.commit(SECOND)
    for _ in range(4):
        world.pass_time()
    world.nodes += [node(f"new-{i}") for i in range(5)]
    for name in [
        name
        for name, body in world.pods.items()
        if body["metadata"]["labels"].get(names.ROLLOUT) is None
    ][:3]:
        world.vanish(name)
    for _ in range(5):
        world.pass_time(1)
        assert len(world.on(SECOND)) <= 2
    world.run()
    assert len(world.on(SECOND)) == 15


@both
def test_a_node_that_was_broken_before_is_parked_and_updated_when_it_recovers(
    owned: bool,
) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.nodes[0]["status"]["conditions"][0]["status"] = "False"
    world.commit(SECOND)
    world.run()
    assert world.on("agent:1") == {"node-000"}
    assert world.body["spec"]["template"]["spec"]["containers"][0]["image"] == SECOND
    assert [one.node for one in world.stages.nodes if one.step is NodeStep.PARKED] == ["node-000"]
    world.nodes[0]["status"]["conditions"][0]["status"] = "True"
    world.run()
    assert len(world.on(SECOND)) == 10


@both
@pytest.mark.parametrize("at_most", range(5))
def test_a_process_that_is_killed_after_any_write_continues(at_most: int, owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.commit(SECOND)
    for number in range(200):
        world.one_turn(at_most if number % 3 == 0 else None)
        world.deploy()
        world.kubelets()
        world.now += 4
        assert min(len(images) for images in world.images().values()) == 1
    world.run()
    assert len(world.on(SECOND)) == 10


@both
def test_a_newer_commit_starts_at_the_canary_again(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.commit(SECOND)
    for _ in range(30):
        world.pass_time()
    assert len(world.on(SECOND)) > 2
    world.commit("agent:3")
    for _ in range(5):
        world.pass_time()
        assert len(world.on("agent:3")) <= 2
    world.run()
    assert len(world.on("agent:3")) == 10


ZONES = ("zone-0", "zone-1", "zone-2")


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """A policy with short soaks: any number of stages, counts, zones, paces and limits."""
    stages: list[Any] = []
    for number in range(draw(st.integers(0, 3))):
        stage: dict[str, Any] = {"name": f"stage-{number}", "soak": f"{draw(st.integers(0, 40))}s"}
        if draw(st.booleans()):
            stage["nodes"] = {"count": draw(st.integers(1, 4))} | draw(
                st.sampled_from(({}, {"perZone": 1}))
            )
        else:
            value = draw(st.sampled_from(ZONES))
            stage["where"] = {"match": [{"key": "topology.kubernetes.io/zone", "in": [value]}]}
        if draw(st.booleans()):
            pace = {
                "start": draw(st.integers(1, 3)),
                "factor": draw(st.integers(1, 3)),
                "max": "50%",
            }
            stage["pace"] = pace | draw(st.sampled_from(({}, {"every": "20s"})))
        if draw(st.booleans()):
            stage |= {"oneAtATime": "topology.kubernetes.io/zone", "soakBetween": "15s"}
        stages.append(stage)
    limits: dict[str, Any] = {"cluster": f"{draw(st.integers(1, 100))}%"}
    limits |= draw(st.sampled_from(({}, {"nodes": 2}, {"perZone": "30%"})))
    document: dict[str, Any] = {"limits": {"atRisk": limits, "parked": "100%"}}
    return document | ({"stages": stages} if stages else {})


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(policies(), st.integers(1, 14), st.booleans(), st.data())
def test_for_any_policy_the_cap_and_the_order_hold_and_a_rollout_without_faults_ends(
    policy: dict[str, Any], count: int, owned: bool, data: st.DataObject
) -> None:
    world = RolloutWorld(policy, count, owned=owned)
    world.commit(SECOND)
    for _ in range(600):
        decided = world.one_turn()
        if decided is not None and world.inputs() is not None:
            stages = decided.stages
            assert stages.at_risk + len(stages.take) <= max(stages.cap, stages.at_risk)
            assert set(stages.take) <= stages.open
            states = [stage.state for stage in stages.stages]
            assert states == sorted(
                states,
                key=(StageState.PASSED, StageState.OPEN, StageState.HELD, StageState.PENDING).index,
            )
            assert stages.halt is None
        world.deploy()
        world.kubelets()
        world.now += data.draw(st.sampled_from((0, 4, 19)), label="seconds") if count < 5 else 9
        if world.body["spec"]["template"]["spec"]["containers"][0]["image"] == SECOND:
            break
    world.run()
    assert world.images() == {f"node-{i:03}": [SECOND] for i in range(count)}


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(
    policies(),
    st.integers(4, 12),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(0, 3), max_size=2),
    st.sets(st.integers(0, 120), max_size=6),
)
def test_for_any_faults_a_bad_template_leaves_no_stage_and_no_broken_node_halts_a_good_one(
    policy: dict[str, Any],
    count: int,
    owned: bool,
    bad: bool,
    broken: set[int],
    evictions: set[int],
) -> None:
    world = RolloutWorld(policy, count, owned=owned)
    for number in broken:
        world.nodes[number]["status"]["conditions"][0]["status"] = "False"
    well = {f"node-{i:03}" for i in range(count) if i not in broken}
    world.bad_images |= {SECOND} if bad else set()
    world.commit(SECOND)
    for number in range(120):
        if number in evictions:
            world.vanish(next(pod.name for pod in world.parsed() if pod.node in well))
        world.pass_time(10)
        stages = world.stages
        if bad:
            passed = [stage for stage in stages.stages if stage.state is StageState.PASSED]
            assert not well & {name for stage in passed for name in stage.nodes}
            assert len(world.on(SECOND)) <= stages.cap
        else:
            assert stages.halt is None
    if not bad:
        world.run()
        hold = world.stages.hold
        if hold is None or "no node of the stage can be updated" not in hold.reason:
            assert world.on(SECOND) == well
        for number in broken:  # they hold their stage if it has no other node
            world.nodes[number]["status"]["conditions"][0]["status"] = "True"
        world.run()
        assert world.on(SECOND) == {f"node-{i:03}" for i in range(count)}
