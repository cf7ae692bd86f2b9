"""DS306 against a search through labels: what is called impossible is, and without comparisons what
is impossible is reported.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.checks.advice import affinity, scheduling
from gitops_ds.kube.apimachinery import label_selector

WORDS = ("a", "b", "3", "5", "6")
LABELS: tuple[dict[str, str], ...] = (
    {},
    *({"zone": value} for value in (*WORDS, "another", *map(str, range(-9, 19)))),
)

listing = st.builds(
    lambda operator, values: {"key": "zone", "operator": operator, "values": values},
    st.sampled_from(("In", "NotIn")),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
)
being = st.sampled_from(
    ({"key": "zone", "operator": "Exists"}, {"key": "zone", "operator": "DoesNotExist"})
)
comparing = st.builds(
    lambda operator, bound: {"key": "zone", "operator": operator, "values": [bound]},
    st.sampled_from(("Gt", "Lt")),
    st.sampled_from(("3", "5", "6")),
)


def daemonset(*terms: Any, **pod: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    affine = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"kind": "DaemonSet", "spec": {"template": {"spec": {"affinity": affine, **pod}}}}


def can_be_met(conditions: list[dict[str, Any]]) -> bool:
    conditions_of_node = [label_selector.from_body(one) for one in conditions]
    return any(label_selector.all_match(conditions_of_node, labels) for labels in LABELS)


def messages(body: dict[str, Any]) -> list[str]:
    return [violation.message for violation in affinity.terms_can_be_met.check(body)]


@given(st.lists(listing | being, min_size=1, max_size=4))
def test_without_comparisons_exactly_the_terms_that_no_node_can_meet_are_reported(
    conditions: list[dict[str, Any]],
) -> None:
    assert bool(messages(daemonset(conditions))) is not can_be_met(conditions)


@given(st.lists(listing | being | comparing, min_size=1, max_size=4))
def test_no_node_can_meet_a_reported_term(conditions: list[dict[str, Any]]) -> None:
    assert not (messages(daemonset(conditions)) and can_be_met(conditions))


def test_a_node_selector_counts_as_well() -> None:
    gone = [{"key": "gpu", "operator": "DoesNotExist"}]
    assert messages(daemonset(gone)) == []
    assert messages(daemonset(gone, nodeSelector={"gpu": "yes"})) == [
        "no node can match all expressions on the label gpu"
    ]


LINUX = {"kubernetes.io/os": "linux"}
NO_FARGATE = [{"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]}]
WORKERS = [{"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}]
ON_WINDOWS = [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]
POOL = [{"key": "pool", "operator": "In", "values": ["a"]}]


@pytest.mark.parametrize(
    ("body", "is_reported"),
    [
        pytest.param(daemonset(NO_FARGATE), True, id="all but a few"),
        pytest.param(daemonset(NO_FARGATE, nodeSelector=LINUX), True, id="every Linux"),
        pytest.param(daemonset(WORKERS), False, id="not the control plane"),
        pytest.param(daemonset(ON_WINDOWS), False, id="Windows has no control plane"),
        pytest.param(daemonset(POOL), False, id="a pool"),
        pytest.param(
            daemonset(NO_FARGATE, nodeSelector={"kubernetes.io/os": "windows"}),
            False,
            id="Windows by its label",
        ),
        pytest.param(
            daemonset(NO_FARGATE, tolerations=[{"operator": "Exists"}]),
            False,
            id="everything is tolerated",
        ),
    ],
)
def test_tolerations_that_match_every_node(body: dict[str, Any], is_reported: bool) -> None:
    body["metadata"] = {"annotations": {"gitops-ds.io/class": "logging"}}
    assert bool(list(scheduling.control_plane.check(body))) is is_reported


@pytest.mark.parametrize("values", [[], ["1", "2"], ["x", "y"]])
def test_a_comparison_without_its_one_number_is_blocking_and_does_not_crash(
    values: list[str],
) -> None:
    conditions = [
        {"key": "zone", "operator": "Gt", "values": values},
        {"key": "zone", "operator": "Lt", "values": ["5"]},
    ]
    body = daemonset(conditions)
    assert list(affinity.terms_can_be_meant.check(body))
    list(affinity.terms_can_be_met.check(body))
