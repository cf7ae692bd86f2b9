"""The body that is applied under ignore rules, one field and its owners a row."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.ownership import ignore_differences
from gitops_ds.ownership.ignore_differences import IgnoreRule

OURS, HPA = "gitops-ds", "hpa"
AGENT = 'k:{"name":"agent"}'
KIND, NAME = {"apiVersion": "v1", "kind": "X"}, {"name": "x", "namespace": "a"}


def live_object(replicas: int, owner: str, cpu: str = "9") -> dict[str, Any]:
    """The object in the cluster, whose identity, `replicas` and CPU have this owner."""
    fields = {
        "f:apiVersion": {},
        "f:kind": {},
        "f:metadata": {"f:name": {}, "f:namespace": {}},
        "f:spec": {"f:replicas": {}, "f:containers": {AGENT: {"f:name": {}, "f:cpu": {}}}},
    }
    entry = {"manager": owner, "operation": "Apply" if owner == OURS else "Update"}
    return {
        **KIND,
        "metadata": {
            **NAME,
            "resourceVersion": "7",
            "managedFields": [{**entry, "fieldsV1": fields}],
        },
        "spec": {
            "replicas": replicas,
            "containers": [{"name": "sidecar"}, {"name": "agent", "cpu": cpu}],
        },
    }


def body(**spec: Any) -> dict[str, Any]:
    return {**KIND, "metadata": NAME, "spec": {"a": 1, **spec}}


CPU = [{"name": "agent", "cpu": "1"}]


@pytest.mark.parametrize(
    ("spec", "owner", "rule", "expected", "adopted"),
    [
        ({"replicas": 2}, HPA, IgnoreRule(("/spec/replicas",)), {}, False),
        ({"replicas": 2}, OURS, IgnoreRule(("/spec/replicas",)), {"replicas": 5}, True),
        ({"replicas": 5}, OURS, IgnoreRule(("/spec/replicas",)), {"replicas": 5}, False),
        ({"replicas": 2}, HPA, IgnoreRule(("/spec/replicas",), (HPA,)), {}, False),
        ({"replicas": 2}, HPA, IgnoreRule(("/spec/replicas",), ("vpa",)), {"replicas": 2}, False),
        ({"replicas": 2}, OURS, IgnoreRule(("/spec/replicas",), (HPA,)), {"replicas": 2}, False),
        ({"replicas": 2}, HPA, IgnoreRule((), (HPA,)), {}, False),
        ({"replicas": 2}, HPA, IgnoreRule(), {"replicas": 2}, False),
        ({"replicas": 2}, HPA, IgnoreRule(("/spec/missing",)), {"replicas": 2}, False),
        (
            {"replicas": 2, "new": 1},
            HPA,
            IgnoreRule(("/spec/new",)),
            {"replicas": 2, "new": 1},
            False,
        ),
        (
            {"containers": CPU},
            HPA,
            IgnoreRule(("/spec/containers/agent/cpu",)),
            {"containers": [{"name": "agent"}]},
            False,
        ),
        (
            {"containers": CPU},
            HPA,
            IgnoreRule(("/spec/containers/0/cpu",)),
            {"containers": [{"name": "agent"}]},
            False,
        ),
        (
            {"containers": CPU},
            OURS,
            IgnoreRule(("/spec/containers/0/cpu",)),
            {"containers": [{"name": "agent", "cpu": "9"}]},
            True,
        ),
        (
            {"containers": CPU},
            HPA,
            IgnoreRule(("/spec/containers/1/cpu",)),
            {"containers": CPU},
            False,
        ),
        (
            {"containers": CPU},
            HPA,
            IgnoreRule((), (HPA,)),
            {"containers": [{"name": "agent"}]},
            False,
        ),
        (
            {"containers": CPU},
            HPA,
            IgnoreRule(("/spec/containers",)),
            {"containers": [{"name": "agent"}]},
            False,
        ),
        (
            {"containers": [{"name": "other", "cpu": "1"}]},
            HPA,
            IgnoreRule(("/spec/containers/0/cpu",)),
            {"containers": [{"name": "other", "cpu": "1"}]},
            False,
        ),
    ],
)
def test_an_ignored_field_is_left_to_its_owner_or_keeps_its_live_value(
    spec: dict[str, Any], owner: str, rule: IgnoreRule, expected: dict[str, Any], adopted: bool
) -> None:
    found = ignore_differences.applied(body(**spec), live_object(5, owner), [rule])
    metadata = {**NAME, **({"resourceVersion": "7"} if adopted else {})}
    assert found == {**KIND, "metadata": metadata, "spec": {"a": 1, **expected}}


def test_a_value_of_another_shape_in_the_cluster_is_not_kept() -> None:
    live = {**live_object(5, HPA), "spec": {"containers": "text", "args": "text"}}
    wanted = body(containers=CPU, args=["a"])
    rule = IgnoreRule(("/spec/containers/0/cpu", "/spec/args/0"))
    assert ignore_differences.applied(wanted, live, [rule]) == wanted


def test_an_item_of_a_list_that_is_owned_as_a_whole_keeps_its_live_value() -> None:
    live = live_object(5, HPA)
    live["spec"]["args"], live["spec"]["empty"] = ["theirs", "b"], [{"x": 1}, "b"]
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"] |= {"f:args": {}, "f:empty": {}}
    rule = IgnoreRule(("/spec/args/0", "/spec/args/2", "/spec/empty/0"))
    wanted = body(args=["ours", "b", "new"], empty=[{}, "b"])
    found = ignore_differences.applied(wanted, live, [rule])["spec"]
    assert (found["args"], found["empty"]) == (["theirs", "b", "new"], [{"x": 1}, "b"])


def test_a_mapping_that_is_empty_then_is_left_out() -> None:
    live = live_object(5, HPA)
    only = {**KIND, "metadata": NAME, "spec": {"replicas": 2}}
    found = ignore_differences.applied(only, live, [IgnoreRule(("/spec/replicas",))])
    assert found == {**KIND, "metadata": NAME}


@pytest.mark.parametrize(
    ("pointer", "path"),
    [
        ("/spec/a", ("spec", "a")),
        ("spec/a", ("spec", "a")),
        ("/spec/l/0", ("spec", "l", 0)),
        ("/spec/l/1/x", ("spec", "l", 1, "x")),
        ("/spec/l/two/x", ("spec", "l", 1, "x")),
        ("/spec/l/2", None),
        ("/spec/l/three", None),
        ("/spec/a~1b", ("spec", "a/b")),
        ("/spec/c~0d", ("spec", "c~d")),
        ("/spec/missing", None),
        ("/spec/a/b", None),
    ],
)
def test_a_pointer_leads_to_a_path(pointer: str, path: tuple[str | int, ...] | None) -> None:
    items = [{"name": "one", "x": 1}, {"name": "two", "x": 2}]
    spec = {"spec": {"a": 1, "a/b": 2, "c~d": 3, "l": items}}
    assert ignore_differences.resolve(spec, pointer) == ((path,) if path else ())
