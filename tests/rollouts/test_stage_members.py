"""The members of a passed stage: nodes that were touched before it passed, not later ones, even if
these come first by the policy's order.
"""

from __future__ import annotations

import pytest

from gitops_ds.model.live import Node
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.rollouts import stage_members
from gitops_ds.rollouts.stage_members import ZONE, Candidates

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
