"""Which nodes are updated now: the limit of a zone, one zone after the other, broken nodes, and the
members of a passed stage.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.live import Node
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import NodeStep
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import pods, timestamps
from gitops_ds.rollouts.decisions import node_selection, stage_members
from gitops_ds.rollouts.decisions.stage_members import ZONE, Candidates
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.rollouts.test_stages import FAST


def one_stage(at_risk: dict[str, Any], **stage: Any) -> dict[str, Any]:
    pace = {"start": "100%", "max": "100%"}
    rest = {"name": "rest", "soak": "60s", "pace": pace, **stage}
    return {"stages": [rest], "limits": {"atRisk": {"cluster": "100%", **at_risk}}}


def zones(world: RolloutWorld, image: str = SECOND) -> list[int]:
    """How many nodes of each zone have the image."""
    labels = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in world.nodes}
    found = [labels[name] for name in world.on(image)]
    return [found.count(zone) for zone in sorted(set(labels.values()))]


@pytest.mark.parametrize(
    ("at_risk", "number", "first"),
    [
        ({}, 12, [4, 4, 4]),
        ({"perZone": 1}, 12, [1, 1, 1]),
        ({"perZone": 3}, 12, [3, 3, 3]),
        ({"perZone": 3, "nodes": 4}, 12, [2, 1, 1]),
        ({"perZone": "50%"}, 10, [2, 2, 2]),  # of 4, 3 and 3 nodes
        ({"perZone": "25%"}, 12, [1, 1, 1]),
        ({"perZone": "26%"}, 12, [2, 2, 2]),
        ({"perZone": 0}, 12, [1, 1, 1]),  # with none no rollout would begin
    ],
)
def test_the_nodes_at_risk_in_a_zone_are_limited(
    at_risk: dict[str, Any], number: int, first: list[int]
) -> None:
    world = RolloutWorld(one_stage(at_risk), number)
    world.commit(SECOND)
    world.pass_time()
    world.pass_time()
    assert sorted(zones(world), reverse=True) == first
    world.run()
    assert len(world.on(SECOND)) == number


def test_the_next_zone_begins_after_the_soak_and_the_time_between() -> None:
    policy = one_stage({}, oneAtATime=ZONE, soakBetween="5m")
    world = RolloutWorld(policy, 6)
    world.commit(SECOND)
    times: dict[int, float] = {}
    for _ in range(500):
        world.pass_time(2)
        times.setdefault(len(world.on(SECOND)), world.now)
    assert list(times) == [2, 4, 6]
    assert times[4] - times[2] == pytest.approx(360, abs=12)
    assert times[6] - times[4] == pytest.approx(360, abs=12)


def test_a_rollout_is_decided_again_when_the_time_between_two_zones_is_over() -> None:
    world = RolloutWorld(one_stage({}, oneAtATime=ZONE, soakBetween="5m"), 6)
    world.commit(SECOND)
    world.until(lambda: len(world.on(SECOND)) == 2)
    at_rest = {NodeStep.PROVED, NodeStep.WAITING}
    world.until(lambda: {one.step for one in world.stages.nodes} == at_rest)
    proved = [
        (pod.ready_since or 0.0) + 60.0
        for pod in world.observe().pods
        if pod.node in world.on(SECOND)
    ]
    assert world.stages.wake_at == max(proved) + 300.0


def fleet(world: RolloutWorld) -> StagedNodes:
    inputs = world.inputs()
    assert inputs is not None
    return StagedNodes.of(decide.layout(world.observe()), inputs)


@pytest.mark.parametrize(("ready", "before", "at_risk"), [(False, True, 0), (False, False, 1)])
def test_a_node_whose_pod_failed_since_the_rollout_began_is_at_risk(
    ready: bool, before: bool, at_risk: int
) -> None:
    world = RolloutWorld(FAST, 10)
    (last,) = [one for name, one in world.pods.items() if one["spec"]["nodeName"] == "node-009"]
    if before:
        world.start(last, ready=ready)
        world.now += 60
    world.commit(SECOND)
    world.pass_time()
    world.pass_time()
    touched = world.on(SECOND)
    if not before:
        world.start(last, ready=ready)
    found = fleet(world)
    assert found.nodes["node-009"].step is NodeStep.WAITING
    assert found.is_agent_broken("node-009") is not ready
    assert found.risky - touched == ({"node-009"} if at_risk else set())


@pytest.mark.parametrize("late", ["created", "placed"])
def test_a_node_whose_pod_was_never_ready_since_the_rollout_began_is_not_at_risk(
    late: str,
) -> None:
    """It was created, or got its place, in the second in which the rollout began or later."""
    world = RolloutWorld(FAST, 10)
    (last,) = [pod for pod in world.pods.values() if pod["spec"]["nodeName"] == "node-009"]
    world.commit(SECOND)
    world.pass_time()
    world.pass_time()
    inputs = world.inputs()
    assert inputs is not None
    began = timestamps.text(inputs.record.began)
    world.start(last, ready=False)
    if late == "created":
        last["metadata"]["creationTimestamp"] = began
    else:
        _, scheduled = last["status"]["conditions"]
        scheduled["lastTransitionTime"] = began
    found = fleet(world)
    assert found.is_agent_broken("node-009")
    assert found.risky == world.on(SECOND)


@pytest.mark.parametrize("owned", [False, True])
def test_a_rollback_counts_the_nodes_whose_pods_still_end(owned: bool) -> None:
    policy = {**FAST, "limits": {"atRisk": {"cluster": "20%"}}}
    world = RolloutWorld(policy, 10, owned=owned)
    for image in (SECOND, "agent:3"):
        world.commit(image)
        world.run()
        world.now += 1000
    world.commit(SECOND)
    while len(world.on(SECOND)) < 10:
        for _ in range(4):  # turns while pods end
            world.one_turn()
        ready = [
            body
            for body in world.pods.values()
            if pods.pod_of(body).ready and not pods.pod_of(body).terminating
        ]
        assert len(ready) >= 8
        world.kubelets()
        world.now += 4


@pytest.mark.parametrize(("seconds", "at_risk"), [(0.0, False), (1.0, True)])
def test_at_rest_a_node_is_at_risk_while_a_pod_that_is_newer_than_the_proof_starts(
    seconds: float, at_risk: bool
) -> None:
    world = RolloutWorld(FAST, 4)
    world.commit(SECOND)
    world.run()
    inputs = world.inputs()
    assert inputs is not None
    assert not inputs.target.staged
    (last,) = [pod for pod in world.pods.values() if pod["spec"]["nodeName"] == "node-003"]
    last["metadata"]["creationTimestamp"] = timestamps.text(inputs.target.since + seconds)
    world.start(last, ready=False)
    found = fleet(world)
    assert found.nodes["node-003"].step is NodeStep.STARTING
    assert found.risky == ({"node-003"} if at_risk else set())


def test_a_node_that_is_not_ready_is_not_at_risk_while_its_pod_is_ready() -> None:
    world = RolloutWorld(FAST, 10)
    world.commit(SECOND)
    world.pass_time()
    world.pass_time()
    world.nodes[9]["status"]["conditions"][0]["status"] = "False"
    found = fleet(world)
    assert found.nodes["node-009"].step is NodeStep.PARKED
    assert "node-009" not in found.risky


@pytest.mark.parametrize(
    ("conditions", "present", "reason"),
    [
        (["Ready"], {}, ""),
        (["Ready", "!Frozen"], {}, ""),
        (["Ready", "!Frozen"], {"Frozen": "True"}, "Frozen"),
        (["!Frozen", "Driver"], {"Frozen": "False"}, "NotDriver"),
        (["!Frozen", "Driver"], {"Driver": "True"}, ""),
        (["Driver", "!Frozen"], {"Frozen": "True"}, "NotDriver"),
        (["!Ready"], {}, "Ready"),
        ([], {"Frozen": "True"}, ""),
    ],
)
def test_the_conditions_of_the_gate_nodes_park_a_node(
    conditions: list[str], present: dict[str, str], reason: str
) -> None:
    policy = {**FAST, "gates": {"nodes": {"conditions": conditions}}}
    world = RolloutWorld(policy, 3)
    for type, status in present.items():
        world.nodes[2]["status"]["conditions"].append({"type": type, "status": status})
    world.commit(SECOND)
    found = fleet(world).nodes["node-002"]
    assert found.reason == reason
    assert found.step is (NodeStep.PARKED if reason else NodeStep.WAITING)
    policy["stages"] = [{**stage, "gates": ["pods"]} for stage in FAST["stages"]]
    world = RolloutWorld(policy, 3)
    world.nodes[2]["status"]["conditions"].append({"type": "Frozen", "status": "True"})
    world.commit(SECOND)
    assert fleet(world).nodes["node-002"].step is NodeStep.WAITING


POLICY = rollout_policy.decode(
    {"stages": [{"name": "canary", "nodes": {"count": 2}}, {"name": "next", "nodes": {"count": 1}}]}
)
PASSED_AT = 1000.65


@pytest.mark.parametrize(
    ("touched", "passed", "canary"),
    [
        ({}, False, "a b"),
        ({"c": 900.0, "d": 950.0}, False, "c d"),
        ({"c": 900.0, "d": 950.0}, True, "c d"),
        # The pod of `a` was made in the second in which the stage passed: the API rounds down.
        ({"c": 900.0, "d": 950.0, "a": 1000.0}, True, "c d"),
        ({"c": 900.0, "d": 950.0, "a": 1001.0}, False, "a c"),
        # A node of the canary left the cluster, or its pod was deleted: the later node soaks there.
        ({"c": 900.0, "a": 1001.0}, True, "a c"),
        ({"a": 1001.0}, True, "a b"),
    ],
)
def test_a_passed_stage_keeps_the_nodes_that_passed_it(
    touched: dict[str, float], passed: bool, canary: str
) -> None:
    nodes = [Node(name, labels={ZONE: "zone"}) for name in "abcd"]
    times = {"canary": PASSED_AT} if passed else {}
    candidates = Candidates(nodes, touched, passed=times)
    assert set(stage_members.members(POLICY, candidates, ())[0]) == set(canary.split())


@pytest.mark.parametrize(
    ("count", "canary"),
    [
        ({"count": 1}, "a1"),
        ({"perZone": 1}, "a1 b1"),
        ({"perZone": 2}, "a1 a2 b1 b2"),
        ({"perZone": 3}, "a1 a2 a3 b1 b2 b3"),
        ({"count": 3, "perZone": 1}, "a1 a2 b1"),
        ({"count": 1, "perZone": 2}, "a1 a2 b1 b2"),
    ],
)
def test_a_stage_takes_a_number_of_nodes_of_each_zone(count: dict[str, int], canary: str) -> None:
    nodes = [Node(name, labels={ZONE: name[0]}) for name in ("a1", "a2", "a3", "b1", "b2", "b3")]
    policy = rollout_policy.decode({"stages": [{"name": "canary", "nodes": count}, "rest"]})
    first, _ = stage_members.members(policy, Candidates(nodes, {}), ())
    assert sorted(first) == canary.split()


@pytest.mark.parametrize(
    ("labels", "canary"),
    [
        ({}, "a"),
        ({"c": {"disk": "ssd"}}, "a"),  # it has only one of the labels
        ({"c": {"disk": "ssd", "pool": "test"}}, "c"),
        ({"d": {"disk": "ssd", "pool": "test"}, "c": {"disk": "ssd", "pool": "test"}}, "c"),
    ],
)
def test_a_stage_takes_nodes_with_the_labels_that_it_prefers_first(
    labels: dict[str, dict[str, str]], canary: str
) -> None:
    nodes = [Node(name, labels={ZONE: "zone", **labels.get(name, {})}) for name in "abcd"]
    prefer = {"disk": "ssd", "pool": "test"}
    policy = rollout_policy.decode(
        {"stages": [{"name": "canary", "nodes": {"count": 1, "prefer": prefer}}, "rest"]}
    )
    (first, rest) = stage_members.members(policy, Candidates(nodes, {}), ())
    assert first == (canary,)
    assert sorted((*first, *rest)) == list("abcd")


@pytest.mark.parametrize(
    ("updated", "parked", "beyond"), [(False, 0, 3), (True, 0, 4), (False, 1, 2)]
)
def test_of_the_nodes_without_a_pod_only_as_many_as_may_be_at_risk_get_the_target(
    updated: bool, parked: int, beyond: int
) -> None:
    world = RolloutWorld(one_stage({"nodes": 2}), 6)
    world.commit(SECOND)
    if updated:
        world.until(lambda: bool(world.on(SECOND)))
    kept = min(world.on(SECOND) or world.on("agent:1"))
    world.pods = {name: body for name, body in world.pods.items() if pods.pod_of(body).node == kept}
    for body in world.nodes[-parked:] if parked else ():
        body["status"]["conditions"][0]["status"] = "False"
    every = fleet(world)
    found = node_selection.beyond_limits(every)
    assert {every.nodes[name].step for name in found} == {NodeStep.REPLACING}
    assert len(found) == beyond
