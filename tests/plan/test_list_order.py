"""The order of containers and variables, which the ownership of fields does not show."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.deploy.plan import object_changes
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import diff, ownership
from tests.plan import world

A, B, C = ({"name": name, "value": name} for name in "ABC")


def agent(*env: Any) -> dict[str, Any]:
    body = world.daemonset()
    body["spec"]["template"]["spec"]["containers"][0]["env"] = list(env)
    return body


@pytest.mark.parametrize(
    ("live", "wanted", "ordered"),
    [
        ((A, B, C), (C, A, B), (C, A, B)),
        ((A, B), (A, B), (A, B)),
        ((C, A, B), (B, A), (C, B, A)),  # C is of another writer
        ((A, C, B), (B, A), (B, C, A)),
        ((A,), (B, A), (A,)),
        ((A, A, B), (B, A), (A, A, B)),
        ((), (A,), ()),
        (({"name": {}}, A), (A, {"name": {}}), ({"name": {}}, A)),  # of a custom kind
    ],
)
def test_common_members_get_the_desired_order_and_others_keep_their_places(
    live: tuple[Any, ...], wanted: tuple[Any, ...], ordered: tuple[Any, ...]
) -> None:
    there = agent(*live)
    before = copy.deepcopy(there)
    assert diff.in_order(there, agent(*wanted)) == agent(*ordered)
    assert there == before
    assert diff.order_differs(there, agent(*wanted)) == (live != ordered)


def test_other_lists_have_no_order() -> None:
    one, other = agent(A), agent(A)
    one["spec"]["template"]["spec"]["volumes"] = [{"name": "a"}, {"name": "b"}]
    other["spec"]["template"]["spec"]["volumes"] = [{"name": "b"}, {"name": "a"}]
    assert not diff.order_differs(one, other)


def test_another_order_is_a_change() -> None:
    body = agent(A, B)
    fields = {"f:spec": {"f:x": {}}}
    live = {**body, "spec": {"x": [], "env": [A, B]}}
    live["metadata"] = {
        **body["metadata"],
        "managedFields": [{"manager": "gitops-ds", "operation": "Apply", "fieldsV1": fields}],
    }
    desired = {"apiVersion": "v1", "kind": "X", "metadata": {}, "spec": {"x": []}}
    assert ownership.would_change_nothing(live, desired)
    fields["f:spec"]["f:env"] = {f'k:{{"name":"{n}"}}': {"f:name": {}, "f:value": {}} for n in "AB"}
    assert ownership.would_change_nothing(live, {**desired, "spec": {"x": [], "env": [A, B]}})
    assert not ownership.would_change_nothing(live, {**desired, "spec": {"x": [], "env": [B, A]}})


def test_a_mapping_that_an_apply_emptied_and_removed_is_found() -> None:
    wanted = world.daemonset(affinity={}, nodeSelector={})
    there = defaults.defaulted(wanted)
    assert not object_changes.lost_empty(there, wanted)
    del there["spec"]["template"]["spec"]["affinity"]
    assert object_changes.lost_empty(there, wanted)
    assert not object_changes.lost_empty(there, world.daemonset())


@pytest.mark.parametrize(
    ("body", "path", "stored"),
    [
        (world.config_map("a", a=None), "data", {"a": ""}),  # type: ignore[arg-type]
        ({"apiVersion": "v1", "kind": "Secret", "data": {"a": None}}, "data", {"a": ""}),
        ({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": None}}, "data", {"a": ""}),
        (
            {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": None}}},
            "spec",
            {"hard": {"pods": "0"}},
        ),
    ],
)
def test_a_null_in_a_map_is_stored_as_the_zero_of_its_type(
    body: dict[str, Any], path: str, stored: Any
) -> None:
    assert defaults.defaulted(body)[path] == stored


def test_string_data_is_applied_as_data() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "data": {"b": "eQ=="}, "stringData": {"a": "x"}}
    merged = defaults.without_string_data(secret)
    assert merged == {"apiVersion": "v1", "kind": "Secret", "data": {"b": "eQ==", "a": "eA=="}}
    assert secret["stringData"] == {"a": "x"}
    other = {"apiVersion": "example.com/v1", "kind": "Secret", "stringData": {"a": "x"}}
    assert defaults.without_string_data(other) is other
