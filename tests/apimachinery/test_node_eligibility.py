"""Which nodes should run a pod, may keep one, or must lose it: one row, one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.live import Node, Taint
from gitops_ds.kube.apimachinery import label_selector, node_eligibility
from gitops_ds.kube.apimachinery.node_eligibility import Placement

RUN, KEEP, EVICT = Placement.RUN, Placement.KEEP, Placement.EVICT
LABELS = {"zone": "a", "size": "5"}


def affine(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def fields(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


ROWS: list[tuple[str, dict[str, Any], tuple[str, ...], Placement]] = [
    ("a plain template runs on a plain node", {}, (), RUN),
    ("another node is named", {"nodeName": "other"}, (), EVICT),
    ("this node is named", {"nodeName": "node"}, (), RUN),
    ("the node selector matches", {"nodeSelector": {"zone": "a"}}, (), RUN),
    ("the node selector does not", {"nodeSelector": {"zone": "b"}}, (), EVICT),
    (
        "node selector and affinity must both match",
        {"nodeSelector": {"zone": "b"}, **affine(labels("zone", "In", "a"))},
        (),
        EVICT,
    ),
    ("In finds the value", affine(labels("zone", "In", "b", "a")), (), RUN),
    ("NotIn is met by an absent label", affine(labels("none", "NotIn", "a")), (), RUN),
    ("Exists", affine(labels("zone", "Exists")), (), RUN),
    ("DoesNotExist", affine(labels("zone", "DoesNotExist")), (), EVICT),
    ("Gt", affine(labels("size", "Gt", "4")), (), RUN),
    ("Gt is not a Ge", affine(labels("size", "Gt", "5")), (), EVICT),
    ("Lt", affine(labels("size", "Lt", "6")), (), RUN),
    ("Lt of a label that is not a number", affine(labels("zone", "Lt", "6")), (), EVICT),
    ("Gt without a number is skipped", affine(labels("size", "Gt", "x")), (), EVICT),
    (
        "terms are alternatives",
        affine(labels("zone", "In", "b"), labels("zone", "In", "a")),
        (),
        RUN,
    ),
    (
        "conditions of one term are not",
        affine({**labels("zone", "In", "a"), **fields("In", "other")}),
        (),
        EVICT,
    ),
    ("an empty term matches nothing", affine({}), (), EVICT),
    ("no term matches nothing", affine(), (), EVICT),
    (
        "a broken term is skipped, the next counts",
        affine(labels("zone", "Near", "a"), labels("zone", "In", "a")),
        (),
        RUN,
    ),
    ("In without values is broken", affine(labels("zone", "In")), (), EVICT),
    ("Exists with values is broken", affine(labels("zone", "Exists", "a")), (), EVICT),
    ("a bad key is broken", affine(labels("a b", "DoesNotExist")), (), EVICT),
    ("the name is a field", affine(fields("In", "node")), (), RUN),
    ("NotIn of the name", affine(fields("NotIn", "node")), (), EVICT),
    ("two names are broken", affine(fields("In", "node", "other")), (), EVICT),
    ("an unknown field is never In", affine(fields("In", "node", key="metadata.uid")), (), EVICT),
    ("and always NotIn", affine(fields("NotIn", "node", key="metadata.uid")), (), RUN),
    ("a taint NoSchedule keeps", {}, ("a=b:NoSchedule",), KEEP),
    ("a taint NoExecute evicts", {}, ("a=b:NoExecute",), EVICT),
    ("the harder of two taints counts", {}, ("a=b:NoSchedule", "c=d:NoExecute"), EVICT),
    ("PreferNoSchedule is not a hindrance", {}, ("a=b:PreferNoSchedule",), RUN),
    ("a cordoned node runs daemons", {}, ("node.kubernetes.io/unschedulable=:NoSchedule",), RUN),
    ("a node that is gone keeps them", {}, ("node.kubernetes.io/unreachable=:NoExecute",), RUN),
    ("but gets no new one", {}, ("node.kubernetes.io/not-ready=:NoSchedule",), KEEP),
    (
        "without a network there is no pod",
        {},
        ("node.kubernetes.io/network-unavailable=:NoSchedule",),
        KEEP,
    ),
    (
        "except on the host's network",
        {"hostNetwork": True},
        ("node.kubernetes.io/network-unavailable=:NoSchedule",),
        RUN,
    ),
    (
        "a toleration of any taint",
        {"tolerations": [{"operator": "Exists"}]},
        ("a=b:NoExecute",),
        RUN,
    ),
    (
        "a toleration by key and value",
        {"tolerations": [{"key": "a", "value": "b"}]},
        ("a=b:NoSchedule",),
        RUN,
    ),
    (
        "another value is another taint",
        {"tolerations": [{"key": "a", "value": "c"}]},
        ("a=b:NoSchedule",),
        KEEP,
    ),
    (
        "another effect too",
        {"tolerations": [{"key": "a", "value": "b", "effect": "NoExecute"}]},
        ("a=b:NoSchedule",),
        KEEP,
    ),
    (
        "Gt tolerates nothing",
        {"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]},
        ("a=2:NoSchedule",),
        KEEP,
    ),
]


def taint(text: str) -> Taint:
    key_value, _, effect = text.partition(":")
    key, _, value = key_value.partition("=")
    return Taint(key, effect, value)


@pytest.mark.parametrize(
    ("spec", "taints", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_node_runs_keeps_or_loses_its_pod(
    spec: dict[str, Any], taints: tuple[str, ...], expected: Placement
) -> None:
    node = Node("node", LABELS, tuple(map(taint, taints)), ready=False, unschedulable=True)
    placer = node_eligibility.read({"spec": spec})
    assert placer.place(node) is expected
    assert placer.place(node) is expected, "the second look remembers the first"


def test_default_tolerations_replace_an_equal_one_and_are_in_order() -> None:
    mine = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    other = {"key": "a", "operator": "Exists"}
    effective = node_eligibility.daemon_tolerations(
        {"tolerations": [mine, other], "hostNetwork": True}
    )
    assert [toleration["key"].rpartition("/")[2] for toleration in effective] == [
        "unreachable",
        "a",
        "not-ready",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    ]
    assert not any("tolerationSeconds" in toleration for toleration in effective)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0" * 5000 + "7", 7),
        ("-" + "0" * 5000 + "7", -7),
        ("9" * 5000, None),
        ("-" + "9" * 5000, None),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_number_of_any_length_is_read_as_go_reads_it(text: str, number: int | None) -> None:
    assert label_selector.integer(text) == number
