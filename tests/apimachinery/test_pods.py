"""What is read from a pod."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.kube.apimachinery import pods, timestamps

NOON = 1_798_761_600.0  # 2027-01-01


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-01-01T00:00:00Z", NOON),
        ("2027-01-01T01:00:00+01:00", NOON),
        ("2027-01-01T00:00:00.250000Z", NOON + 0.25),
        ("", None),
        ("yesterday", None),
    ],
)
def test_times_are_read(text: str, seconds: float | None) -> None:
    assert timestamps.seconds(text) == seconds


def test_times_are_written_in_whole_seconds() -> None:
    assert timestamps.text(NOON + 0.9) == "2027-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("since", "min_ready", "now", "available"),
    [
        ("2027-01-01T00:00:00Z", 10, NOON + 9, False),
        ("2027-01-01T00:00:00Z", 10, NOON + 10, True),
        ("2027-01-01T00:00:00Z", 0, NOON - 5, True),
        (None, 0, NOON, True),
        (None, 10, NOON, False),
    ],
)
def test_a_pod_is_available_once_it_was_ready_long_enough(
    since: str | None, min_ready: int, now: float, available: bool
) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    pod = pods.pod_of({"metadata": {}, "status": {"conditions": [condition]}})
    assert pod.available(min_ready, now) is available


def named(*entries: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchFields": [entry]} for entry in entries]
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
    }


ENTRY = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}


@pytest.mark.parametrize(
    ("spec", "node", "bound"),
    [
        ({"nodeName": "node-2", **named(ENTRY)}, "node-2", True),
        (named(ENTRY), "node-1", False),
        (named({**ENTRY, "operator": "NotIn"}, ENTRY), "node-1", False),
        (named({**ENTRY, "values": ["a", "b"]}), "", False),
        ({}, "", False),
    ],
)
def test_a_pod_belongs_to_the_node_it_runs_on_or_is_assigned_to(
    spec: dict[str, Any], node: str, bound: bool
) -> None:
    pod = pods.pod_of({"metadata": {}, "spec": spec})
    assert (pod.node, pod.bound) == (node, bound)


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            "CrashLoopBackOff",
        ),
        (
            {"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "ErrImagePull",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Failed"}, "Failed"),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ]
            },
            "Unschedulable",
        ),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, ""),
    ],
)
def test_the_problem_of_a_pod_is_its_first_reason(status: dict[str, Any], trouble: str) -> None:
    assert pods.pod_of({"metadata": {}, "status": status}).trouble == trouble


def test_only_the_controller_among_the_owners_counts() -> None:
    references = [
        {"kind": "A", "name": "a", "uid": "1"},
        {"kind": "B", "name": "b", "uid": "2", "controller": True},
    ]
    owner = pods.controller_of({"ownerReferences": references})
    assert owner is not None
    assert owner.uid == "2"
    assert pods.controller_of({}) is None
