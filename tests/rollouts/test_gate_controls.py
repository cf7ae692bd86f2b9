"""The untouched nodes that a gate compares with, and its result without any."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.model.rollouts.rollout_gates import GateRequest, GateSample, Reading
from gitops_ds.model.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.rollouts import gate_results
from tests.daemonset.world import node
from tests.rollouts.gated_world import GatedWorld, policy
from tests.rollouts.rollout_world import SECOND

NODES = 4
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
    found = gate_results.controls(progress[::-1], kinds, "1")
    assert ["".join(sorted(names)) for names in found] == [touched, untouched]


def measure(request: GateRequest, now: float) -> Reading:
    return Reading(now, frozenset(request.subject.nodes), (GateSample(9),), (10.0,))


def alone(**keys: Any) -> GatedWorld:
    """A rollout over nodes of different kinds."""
    nodes = [node(f"node-{i:03}", {"kubernetes.io/arch": f"arch-{i}"}) for i in range(NODES)]
    rollout = GatedWorld(policy({**GATE, **keys}, progress={"deadline": "10m"}), nodes, measure)
    rollout.commit(SECOND)
    return rollout


def is_complete(rollout: GatedWorld) -> bool:
    return rollout.last is not None and rollout.last.stages.complete


def test_when_every_node_is_touched_the_last_result_counts() -> None:
    document = policy({**GATE, "for": "10m"})
    document["stages"][1] |= {"gates": ["pods", "flow"], "pace": {"start": 1, "factor": 1}}
    rollout = GatedWorld(document, NODES, measure)
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
    assert gate_results.address(url) == text
