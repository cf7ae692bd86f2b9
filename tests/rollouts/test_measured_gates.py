"""Measured gates in rollouts: passes, holds, halts, the way back, and the nodes to compare with."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_ds.core.rollouts.rollout_gates import (
    GateRequest,
    GateSample,
    MemoryRequest,
    NeighboursRequest,
    Reading,
    WebhookRequest,
)
from gitops_ds.core.rollouts.rollout_policy import NodeCount, Stage
from gitops_ds.core.rollouts.staged_rollout import NodeProgress, NodeStep, StageState
from gitops_ds.core.values import replace
from gitops_ds.rollouts.decisions import measured_gates
from tests.daemonset.world import node
from tests.profiles import examples
from tests.rollouts.gated_world import GatedWorld, every, no_data, policy, values
from tests.rollouts.rollout_world import SECOND

QUERY = 'errors{node=~"$nodes"}'
NODES = 5
FLOW = {"prometheus": QUERY, "below": 5}


def world(gate: dict[str, Any], measure: Any, number: int = NODES, **keys: Any) -> GatedWorld:
    made = GatedWorld(policy(gate, **keys), number, measure)
    made.commit(SECOND)
    return made


def test_a_gate_within_its_bounds_passes_and_names_the_touched_nodes_only() -> None:
    rollout = world(FLOW, values(1))
    rollout.finish(SECOND)
    queries = {query.query for query in rollout.queries}
    assert queries <= {'errors{node=~"node-000"}', 'errors{node=~"node-000|node-001"}'}
    assert all(query.before is None and not query.control for query in rollout.queries)


def test_an_exceeded_bound_halts_with_the_evidence_and_the_revert_ignores_gates() -> None:
    rollout = world(FLOW, values(7))
    rollout.until(lambda: rollout.halt is not None)
    halt = rollout.halt
    assert halt is not None
    assert halt.gate is not None
    assert halt.stage == "canary"
    assert halt.message == 'gate flow failed: 7 ({node="0"}) is not below 5, on node-000'
    assert halt.gate.lines == (
        "gate: flow",
        f"query: {QUERY}",
        'value: 7 ({node="0"})',
        "bound: below 5",
        "nodes: node-000",
    )
    rollout.measure = values(1)
    rollout.quiet(600, SECOND)
    count = len(rollout.asked)
    rollout.commit("agent:1")
    rollout.run()
    assert rollout.on(SECOND) == set()
    assert len(rollout.asked) == count


@pytest.mark.parametrize(
    ("touched", "words"), [(1, ", on node-000"), (2, ", on node-000 and 1 other node")]
)
def test_the_message_of_a_failed_gate_counts_its_nodes(touched: int, words: str) -> None:
    def measure(request: GateRequest, now: float) -> Reading:
        nodes = frozenset(request.subject.nodes)
        return Reading(now, nodes, (GateSample(7 if len(nodes) == touched else 1),))

    rollout = world(FLOW, measure)
    rollout.until(lambda: rollout.halt is not None)
    assert rollout.halt is not None
    assert rollout.halt.message.endswith(f"is not below 5{words}")


def test_no_data_holds_before_a_further_node_is_touched_and_is_overdue_after_the_deadline() -> None:
    rollout = world(FLOW, no_data, progress={"deadline": "10m"})
    rollout.until(lambda: "no data" in rollout.hold)
    assert rollout.ends is not None
    assert len(rollout.on(SECOND)) == 1
    rollout.quiet(900, SECOND)
    assert rollout.hold == ("gate flow has no data: Prometheus: no response in time, overdue")
    rollout.measure = values(1)
    rollout.finish(SECOND)


@pytest.mark.parametrize("has_passed", [True, False])
def test_a_gate_that_a_later_policy_adds_compares_with_the_time_before_the_stage(
    has_passed: bool,
) -> None:
    rollout = world(FLOW, values(1))
    rollout.until(lambda: bool(rollout.on(SECOND)))
    inputs = rollout.inputs()
    assert inputs is not None
    began = inputs.record.began
    compared = world({**FLOW, "compare": {"before": "+30%"}}, values(1)).policy
    stages = compared.stages
    if has_passed:
        stages = (Stage("earlier", nodes=NodeCount(), gates=()), *stages)
        passed = {"earlier": began + 3.0}
        inputs = replace(inputs, record=replace(inputs.record, passed=passed))
    inputs = replace(inputs, policy=replace(compared, stages=stages))
    record = rollout.decide(rollout.observe(), inputs).stages.record
    assert record.before == {"canary": began + 3.0 if has_passed else began}


def test_a_stage_waits_while_a_touched_node_has_no_series() -> None:
    def measure(request: GateRequest, now: float) -> Reading:
        nodes = frozenset(request.subject.nodes)
        about = frozenset(getattr(request, "about", ()))
        return Reading(now, nodes, (GateSample(1, node=min(nodes)),), about=about)

    rollout = world(FLOW, measure)
    rollout.until(lambda: len(rollout.on(SECOND)) == 2)
    second = max(rollout.on(SECOND))
    reason = f"gate flow has no data: 1 of 2 nodes without a value: {second}"
    rollout.until(lambda: rollout.hold == reason)
    rollout.quiet(600, SECOND)
    rollout = world({**FLOW, "dataOf": "50%"}, measure)
    rollout.finish(SECOND)


def test_no_data_passes_or_fails_by_the_policy() -> None:
    rollout = world({**FLOW, "noData": "pass"}, no_data)
    rollout.finish(SECOND)
    rollout = world({**FLOW, "noData": "fail", "for": "2m"}, no_data)
    rollout.until(lambda: rollout.halt is not None)
    halt = rollout.halt
    assert halt is not None
    assert "no data (Prometheus: no response in time) for 2 min" in halt.message
    assert len(rollout.on(SECOND)) == 1


@pytest.mark.parametrize(("rule", "seconds"), [("fail", 120.0), ("hold", 600.0)])
def test_after_a_restart_a_gate_without_data_ends_at_the_same_time(
    rule: str, seconds: float
) -> None:
    gate = {**FLOW, "noData": rule, "for": "2m"}
    rollout = world(gate, no_data, progress={"deadline": "10m"})
    rollout.until(lambda: "no data" in rollout.hold)
    (record,) = rollout.stages.record.gates.values()
    assert rollout.ends == record.since + seconds
    rollout.restart()
    rollout.one_turn()
    assert rollout.ends == record.since + seconds


@pytest.mark.parametrize("rule", ["hold", "fail", "pass"])
def test_without_settings_the_rollout_holds_regardless_of_the_meaning_of_no_data(rule: str) -> None:
    def unavailable(request: GateRequest, now: float) -> Reading:
        return Reading(now, reason="no Prometheus server", unavailable=True)

    rollout = world({**FLOW, "noData": rule, "for": "30s"}, unavailable)
    rollout.until(lambda: "no Prometheus server" in rollout.hold)
    rollout.quiet(900, SECOND)


def test_a_failure_counts_after_the_whole_time_of_for_and_any_other_reading_begins_again() -> None:
    bad, good = Reading(0.0, samples=(GateSample(7),)), Reading(0.0, samples=(GateSample(1),))
    gate = {**FLOW, "for": "60s"}
    rollout = world(gate, every([bad, bad, bad, good, bad, bad, bad, good]))
    rollout.finish(SECOND)
    rollout = world(gate, every([good, bad]))
    rollout.until(lambda: "is not below 5" in rollout.hold)
    began = rollout.now
    rollout.until(lambda: rollout.halt is not None)
    assert 45 <= rollout.now - began <= 90


def test_a_gate_that_was_within_its_bounds_for_the_whole_time_is_measured_once_more() -> None:
    rollout = world({**FLOW, "for": "2m"}, values(1))
    rollout.until(lambda: rollout.hold == "gate flow is within its bounds")
    (record,) = rollout.stages.record.gates.values()
    rollout.readings = {
        probe: replace(one, at=record.since) for probe, one in rollout.readings.items()
    }
    inputs = rollout.inputs()
    assert inputs is not None
    for seconds, reason, ends in (
        (119.0, "gate flow is within its bounds", True),
        (120.0, "gate flow is within its bounds, and measured again", False),
    ):
        rollout.now = record.since + seconds
        hold = rollout.decide(rollout.observe(), inputs).stages.hold
        assert hold is not None
        assert (hold.reason, hold.until is not None) == (reason, ends)


def test_a_stage_passes_after_the_whole_time_of_for_within_the_bounds() -> None:
    rollout = world({**FLOW, "for": "30m"}, values(1))
    began = rollout.now
    rollout.until(lambda: len(rollout.on(SECOND)) > 2)
    assert rollout.now - began >= 1800


def test_a_restart_of_the_service_begins_the_time_of_a_pass_again_not_that_of_a_failure() -> None:
    rollout = world({**FLOW, "for": "30m"}, values(1))
    began = rollout.now
    while rollout.now - began < 1700:
        rollout.pass_time()
    rollout.restart()
    rollout.until(lambda: len(rollout.on(SECOND)) > 2, 1000)
    assert rollout.now - began >= 1700 + 1800
    rollout = world({**FLOW, "for": "30m"}, values(7))
    rollout.until(lambda: "is not below 5" in rollout.hold)
    began = rollout.now
    while rollout.now - began < 1700:
        rollout.pass_time()
    rollout.restart()
    rollout.until(lambda: rollout.halt is not None)
    assert rollout.now - began < 2000


def test_before_is_the_time_of_the_first_touch_also_after_a_restart() -> None:
    rollout = world({"prometheus": QUERY, "compare": {"before": "+30%"}}, values(1, before=1))
    began = rollout.now
    rollout.until(lambda: len(rollout.asked) > 2)
    rollout.restart()
    rollout.until(lambda: len(rollout.asked) > 4)
    assert {query.before for query in rollout.queries} == {began}
    rollout.finish(SECOND)


def test_control_are_as_many_untouched_nodes_and_the_last_result_counts_without_any() -> None:
    def measure(request: GateRequest, now: float) -> Reading:
        return Reading(now, frozenset(request.subject.nodes), (GateSample(9),), (10.0,))

    gate = {"prometheus": QUERY, "compare": {"control": "-20%"}}
    document = policy(gate)
    document["stages"][1]["gates"] = ["pods", "nodes", "flow"]
    rollout = GatedWorld(document, NODES, measure)
    rollout.commit(SECOND)
    rollout.finish(SECOND)
    assert rollout.queries
    for query in rollout.queries:
        touched, untouched = (set(text[14:-2].split("|")) for text in (query.query, query.control))
        assert len(touched) == len(untouched)
        assert not touched & untouched


def test_each_probe_of_a_gate_has_its_own_request() -> None:
    gate = {
        "webhook": {"url": "https://gates.example.com/", "timeout": "5s"},
        "memoryOfLimit": "90%",
        "neighbours": {"newlyUnready": 0},
    }

    def measure(request: GateRequest, now: float) -> Reading:
        samples = (GateSample(0, bound="newlyUnready"),)
        return Reading(now, frozenset(request.subject.nodes), samples, passes=True)

    rollout = world(gate, measure)
    rollout.finish(SECOND)
    kinds = {type(one) for one in rollout.asked}
    assert kinds == {WebhookRequest, MemoryRequest, NeighboursRequest}
    touched = next(one for one in rollout.asked if isinstance(one, NeighboursRequest)).touched
    assert all(time > 0 for time in touched.values())


def test_the_limits_of_memory_are_those_of_the_template() -> None:
    template = {
        "spec": {
            "containers": [
                {"name": "a", "resources": {"limits": {"memory": "64Mi"}}},
                {"name": "b", "resources": {"limits": {"memory": "no number"}}},
                {"name": "c"},
                {"name": "d", "resources": {"limits": {"memory": "1"}}},
                {"name": "e", "resources": {"limits": {"memory": "0"}}},
            ]
        }
    }
    assert measured_gates.limits_of(template) == {"a": 64 << 20, "d": 1}


def test_the_record_is_bounded_and_written_at_changes_only() -> None:
    rollout = world({**FLOW, "for": "30m"}, values(1))
    records = []
    for _ in range(300):
        rollout.pass_time()
        records.append(rollout.stages.record)
    changes = sum(1 for one, two in itertools.pairwise(records) if one != two)
    assert changes <= 3
    assert len(records[-1].gates) == 1
    rollout.until(lambda: len(rollout.on(SECOND)) > 2)
    assert rollout.stages.record.gates == {}


readings = st.sampled_from(
    [
        Reading(0.0, samples=(GateSample(1),)),
        Reading(0.0, samples=(GateSample(7),)),
        Reading(0.0, samples=(GateSample(math.nan),)),
        Reading(0.0, samples=(GateSample(math.inf),)),
        Reading(0.0, reason="no response in time"),
    ]
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    sequence=st.lists(readings, min_size=1, max_size=12),
    lasting=st.sampled_from(["0s", "30s", "2m"]),
    rule=st.sampled_from(["hold", "fail", "pass"]),
    restarts=st.sets(st.integers(0, 45), max_size=3),
)
def test_no_node_beyond_the_canary_without_good_data_and_no_halt_is_undone(
    sequence: list[Reading], lasting: str, rule: str, restarts: set[int]
) -> None:
    rollout = world({**FLOW, "for": lasting, "noData": rule}, every(sequence))
    good = 0
    for turn in range(50):
        if turn in restarts:
            rollout.restart()
        rollout.pass_time()
        stages = rollout.stages
        good += any(
            reading.samples and reading.samples[0].value == 1
            for reading in rollout.readings.values()
        )
        if len(rollout.on(SECOND)) > 2:
            assert stages.stages[0].state is StageState.PASSED
            assert good or rule == "pass"
        if stages.halt is not None:
            rollout.quiet(60, SECOND)
            return


FOUR = 4
GATE = {"prometheus": 'errors{node=~"$nodes"}', "compare": {"control": "-20%"}}
STEPS = {
    "P": NodeStep.PROVED,
    "S": NodeStep.SOAKING,
    "W": NodeStep.WAITING,
    "A": NodeStep.STARTING,
    "B": NodeStep.PARKED,
}


@pytest.mark.parametrize(
    ("nodes", "touched", "untouched"),
    [
        ("P1 W1", "0", "1"),
        ("P1 W1 W1", "0", "1"),
        ("P1 S1 W1", "1", "2"),  # one that is not proved first
        ("S1 P1 W1", "0", "2"),
        ("P1 P1 W1", "0", "2"),
        ("P1 W2 W1", "0", "2"),  # one of the same stage first
        ("P1 W1 W2", "0", "1"),
        ("P1 W2", "0", "1"),
        ("P2 W1", "", ""),  # of another stage
        ("A1 W1", "", ""),  # it does not run the target yet
        ("P1 B1", "", ""),
        ("P1 P1", "", ""),
        ("P1 W1x", "", ""),  # of another kind
        ("P1 P1x W1 W1 W1x W1x", "01", "24"),
        ("P1 P1 S1x W1 W1x W1x", "02", "34"),
        ("P1 P1 W1 W1 W1", "01", "23"),
    ],
)
def test_as_many_touched_nodes_as_untouched_ones_of_each_kind(
    nodes: str, touched: str, untouched: str
) -> None:
    words = nodes.split()
    progress = [
        NodeProgress(str(index), word[1], STEPS[word[0]]) for index, word in enumerate(words)
    ]
    kinds = {str(index): ("linux", word[2:]) for index, word in enumerate(words)}
    found = measured_gates.controls(progress[::-1], kinds, "1")
    assert ["".join(sorted(names)) for names in found] == [touched, untouched]


def measure(request: GateRequest, now: float) -> Reading:
    return Reading(now, frozenset(request.subject.nodes), (GateSample(9),), (10.0,))


def alone(**keys: Any) -> GatedWorld:
    """A rollout over nodes of different kinds."""
    nodes = [node(f"node-{i:03}", {"kubernetes.io/arch": f"arch-{i}"}) for i in range(FOUR)]
    rollout = GatedWorld(policy({**GATE, **keys}, progress={"deadline": "10m"}), nodes, measure)
    rollout.commit(SECOND)
    return rollout


def is_complete(rollout: GatedWorld) -> bool:
    return rollout.last is not None and rollout.stages.complete


def test_when_every_node_is_touched_the_last_result_counts() -> None:
    document = policy({**GATE, "for": "10m"})
    document["stages"][1] |= {"gates": ["pods", "flow"], "pace": {"start": 1, "factor": 1}}
    rollout = GatedWorld(document, FOUR, measure)
    rollout.commit(SECOND)
    rollout.until(lambda: len(rollout.on(SECOND)) == 3)
    began = rollout.now
    rollout.finish(SECOND)
    count = len(rollout.asked)
    rollout.until(lambda: is_complete(rollout))
    assert 600 <= rollout.now - began <= 660
    assert len(rollout.asked) <= count + 1


def test_without_an_untouched_node_at_any_time_there_is_no_data() -> None:
    reason = "gate flow has no data: no untouched node of the same kind is left"
    rollout = alone()
    rollout.until(lambda: rollout.hold == reason)
    rollout.until(lambda: rollout.hold == f"{reason}, overdue")
    rollout = alone(noData="pass")
    rollout.until(lambda: is_complete(rollout))
    assert not rollout.asked
    rollout = alone(noData="fail", **{"for": "2m"})
    rollout.until(lambda: rollout.halt is not None)
    assert rollout.halt is not None
    assert rollout.halt.message.startswith(
        "gate flow failed: no data (no untouched node of the same kind is left) for 2 min"
    )


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://gates.example.com/a/b", "https://gates.example.com/a/b"),
        ("https://gates.example.com:8443/a", "https://gates.example.com:8443/a"),
        ("https://ada:secret@gates.example.com/a?token=secret#x", "https://gates.example.com/a"),
        ("https://gates.example.com:no/a", ""),
    ],
)
def test_the_address_of_a_webhook_has_no_secrets(url: str, text: str) -> None:
    assert measured_gates.address(url) == text
