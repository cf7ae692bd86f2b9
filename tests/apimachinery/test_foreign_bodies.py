"""A reduced body has what decisions read, is small, and its template is equal where the whole one
is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from gitops_ds.core.live import Node, Taint
from gitops_ds.core.objects import key_of
from gitops_ds.daemonset import competing_controller
from gitops_ds.kube.apimachinery import daemonsets, foreign_bodies, node_eligibility, revisions
from gitops_ds.kube.apimachinery.foreign_bodies import MOST, reduced

SPEC: Mapping[str, Any] = {
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"operator": "Exists"}],
    "containers": [
        {
            "name": "agent",
            "image": "agent:1",
            "ports": [{"hostPort": 9999, "containerPort": 1}],
            "env": [{"name": f"E{number}", "value": "x" * 1000} for number in range(1000)],
        }
    ],
}
TAINT = Taint("key", "NoSchedule")
COUNTERS = {"f:currentNumberScheduled": {}, "f:numberReady": {}}


def daemonset(**spec: Any) -> dict[str, Any]:
    labels = {"app": "agent"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "namespace": "tenant",
            "name": "agent",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 3,
            "labels": labels,
            "annotations": {"gitops-ds.io/commit": "1" * 40, "note": "x" * 200_000},
            "managedFields": [
                {"manager": "kubectl", "time": "t", "fieldsV1": {"f:spec": {"f:template": {}}}},
                {
                    "manager": "kcm",
                    "time": "t",
                    "subresource": "status",
                    "fieldsV1": {"f:status": COUNTERS},
                },
            ],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "minReadySeconds": 5,
            "template": {"metadata": {"labels": labels}, "spec": {**SPEC, **spec}},
        },
        "status": {"desiredNumberScheduled": 4, "numberReady": 3, "conditions": ["x" * 100_000]},
    }


def revision(template: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"namespace": "tenant", "name": "agent-1", "uid": "r"},
        "revision": 1,
        "data": revisions.data(template),
    }


def test_a_large_daemonset_becomes_small_and_keeps_what_decisions_read() -> None:
    whole = daemonset()
    small = reduced(whole)
    assert len(orjson.dumps(whole)) > 1_000_000
    assert len(orjson.dumps(small)) < MOST
    before, after = daemonsets.daemonset_of(whole), daemonsets.daemonset_of(small)
    for field in ("key", "uid", "version", "generation", "selector", "strategy", "counts"):
        assert getattr(before, field) == getattr(after, field)
    assert before.min_ready_seconds == after.min_ready_seconds == 5
    assert key_of(small) == key_of(whole)
    assert competing_controller.counting(small) == competing_controller.counting(whole)
    assert "f:spec" in small["metadata"]["managedFields"][0]["fieldsV1"]
    for node in (Node("a", {"pool": "gpu"}), Node("b"), Node("c", {"pool": "gpu"}, (TAINT,))):
        placed = [node_eligibility.read(one.template).place(node) for one in (before, after)]
        assert placed[0] is placed[1]


def test_templates_are_equal_if_the_whole_ones_are() -> None:
    whole = daemonset()
    template = whole["spec"]["template"]
    other = copy.deepcopy(template)
    other["spec"]["containers"][0]["env"][999]["value"] = "y"
    nulls = {**template, "metadata": {**template["metadata"], "creationTimestamp": None}}
    small = daemonsets.daemonset_of(reduced(whole)).template
    for stored, equal in ((template, True), (nulls, True), (other, False)):
        kept = revisions.revision_of(reduced(revision(stored)))
        assert kept is not None
        assert revisions.same_template(small, kept.template) is equal


@pytest.mark.parametrize(
    "large",
    [
        {"nodeSelector": {f"label-{number}": "x" * 60 for number in range(1000)}},
        {"containers": [{"name": f"c{number}", "image": "x" * 200} for number in range(1000)]},
        {"tolerations": [{"key": f"k{number}", "value": "x" * 60} for number in range(1000)]},
    ],
)
def test_no_field_makes_a_reduced_body_large(large: Mapping[str, Any]) -> None:
    body = daemonset(**large)
    body["metadata"]["labels"] |= {f"l{number}": "x" * 60 for number in range(1000)}
    body["spec"]["selector"]["matchLabels"] |= body["metadata"]["labels"]
    for whole in (body, revision(body["spec"]["template"])):
        small = reduced(whole)
        assert len(orjson.dumps(small)) < MOST
        assert key_of(small) == key_of(whole)
        assert foreign_bodies.is_reduced(small)
    assert not foreign_bodies.is_reduced(body)


def test_of_another_kind_the_metadata_remain() -> None:
    metadata = {"namespace": "a", "name": "b", "labels": {"gitops-ds.io/owner": "o"}, "uid": "u"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "y"}}
    small = reduced(body)
    assert small["metadata"].items() >= metadata.items()
    assert "data" not in small
