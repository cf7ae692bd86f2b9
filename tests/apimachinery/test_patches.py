"""JSON Patch, JSON Merge Patch and strategic merge: the examples of their own specifications, and
what they refuse.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.kube.apimachinery import patches
from gitops_ds.kube.apimachinery.patches import PatchFailed

JSON_PATCH: list[tuple[str, Any, list[dict[str, Any]], Any]] = [
    # RFC 6902, appendix A
    (
        "A.1 add a member",
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux"}],
        {"baz": "qux", "foo": "bar"},
    ),
    (
        "A.2 add an element",
        {"foo": ["bar", "baz"]},
        [{"op": "add", "path": "/foo/1", "value": "qux"}],
        {"foo": ["bar", "qux", "baz"]},
    ),
    (
        "A.3 remove a member",
        {"baz": "qux", "foo": "bar"},
        [{"op": "remove", "path": "/baz"}],
        {"foo": "bar"},
    ),
    (
        "A.4 remove an element",
        {"foo": ["bar", "qux", "baz"]},
        [{"op": "remove", "path": "/foo/1"}],
        {"foo": ["bar", "baz"]},
    ),
    (
        "A.5 replace",
        {"baz": "qux"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo"},
    ),
    (
        "A.6 move a member",
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        "A.7 move an element",
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        "A.8 test",
        {"baz": "qux", "foo": ["a", 2]},
        [{"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2]},
    ),
    (
        "A.14 escapes",
        {"/": 9, "~1": 10},
        [{"op": "test", "path": "/~01", "value": 10}],
        {"/": 9, "~1": 10},
    ),
    (
        "A.16 append",
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc"]}],
        {"foo": ["bar", ["abc"]]},
    ),
    (
        "copy",
        {"a": {"b": 1}},
        [{"op": "copy", "from": "/a", "path": "/c"}],
        {"a": {"b": 1}, "c": {"b": 1}},
    ),
    ("the whole document", {"a": 1}, [{"op": "replace", "path": "", "value": []}], []),
]

REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("a missing parent", {}, {"op": "add", "path": "/a/b", "value": 1}, "/a does not exist"),
    ("removing a missing key", {}, {"op": "remove", "path": "/a"}, "/a does not exist"),
    (
        "replacing what is not there",
        {},
        {"op": "replace", "path": "/a", "value": 1},
        "/a does not exist",
    ),
    ("behind the end", {"a": [1]}, {"op": "add", "path": "/a/2", "value": 1}, "only 1 entries"),
    ("a leading zero", {"a": [1]}, {"op": "remove", "path": "/a/00"}, "requires an index"),
    (
        "a failed test",
        {"a": 1},
        {"op": "test", "path": "/a", "value": 2},
        "differs from the test",
    ),
    (
        "a path without a slash",
        {},
        {"op": "add", "path": "a", "value": 1},
        "does not begin with a slash",
    ),
    ("no value", {}, {"op": "add", "path": "/a"}, "requires a value"),
    (
        "an unknown operation",
        {},
        {"op": "set", "path": "/a", "value": 1},
        "set is not an operation",
    ),
    ("into itself", {"a": {}}, {"op": "move", "from": "/a", "path": "/a/b"}, "into itself"),
]

STRATEGIC: list[tuple[str, str, Any, Any, Any]] = [
    (
        "mappings merge",
        "DaemonSet",
        {"a": {"b": 1, "c": 2}},
        {"a": {"b": 3}},
        {"a": {"b": 3, "c": 2}},
    ),
    ("null removes", "DaemonSet", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    (
        "containers merge by name",
        "DaemonSet",
        {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]},
        {"containers": [{"name": "b", "image": "z"}, {"name": "c", "image": "w"}]},
        {
            "containers": [
                {"name": "a", "image": "x"},
                {"name": "b", "image": "z"},
                {"name": "c", "image": "w"},
            ]
        },
    ),
    ("args are replaced", "DaemonSet", {"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    (
        "tolerations are replaced",
        "DaemonSet",
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    (
        "a container's ports merge by containerPort",
        "DaemonSet",
        {"ports": [{"containerPort": 80, "name": "http"}]},
        {"ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 443}]},
        {"ports": [{"containerPort": 80, "name": "http", "hostPort": 80}, {"containerPort": 443}]},
    ),
    (
        "a Service's ports merge by port",
        "Service",
        {"ports": [{"port": 80, "name": "http"}]},
        {"ports": [{"port": 80, "targetPort": 8080}]},
        {"ports": [{"port": 80, "name": "http", "targetPort": 8080}]},
    ),
    (
        "an entry can be deleted",
        "DaemonSet",
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"env": [{"name": "A", "$patch": "delete"}]},
        {"env": [{"name": "B", "value": "2"}]},
    ),
    (
        "a list can be replaced",
        "DaemonSet",
        {"env": [{"name": "A"}]},
        {"env": [{"$patch": "replace"}, {"name": "B"}]},
        {"env": [{"name": "B"}]},
    ),
    (
        "a mapping can be replaced",
        "DaemonSet",
        {"a": {"b": 1}},
        {"a": {"$patch": "replace", "c": 2}},
        {"a": {"c": 2}},
    ),
    (
        "a mapping can be deleted",
        "DaemonSet",
        {"a": {"b": 1}, "d": 1},
        {"a": {"$patch": "delete"}},
        {"d": 1},
    ),
    (
        "sets of texts are joined",
        "DaemonSet",
        {"finalizers": ["a"]},
        {"finalizers": ["b", "a"]},
        {"finalizers": ["a", "b"]},
    ),
    (
        "texts can be taken out",
        "DaemonSet",
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    (
        "only the retained keys stay",
        "DaemonSet",
        {"v": {"emptyDir": {}, "name": "x"}},
        {"v": {"$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}},
        {"v": {"name": "x", "hostPath": {"path": "/x"}}},
    ),
    (
        "the order can be set",
        "DaemonSet",
        {"env": [{"name": "A"}, {"name": "B"}, {"name": "C"}]},
        {"$setElementOrder/env": [{"name": "C"}, {"name": "A"}]},
        {"env": [{"name": "C"}, {"name": "A"}, {"name": "B"}]},
    ),
]


@pytest.mark.parametrize(
    ("target", "patch", "expected"), [pytest.param(*row[1:], id=row[0]) for row in JSON_PATCH]
)
def test_json_patch_does(target: Any, patch: list[dict[str, Any]], expected: Any) -> None:
    before = copy.deepcopy(target)
    assert patches.apply_json_patch(target, patch) == expected
    assert target == before


@pytest.mark.parametrize(
    ("target", "operation", "words"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_json_patch_refuses(target: Any, operation: dict[str, Any], words: str) -> None:
    with pytest.raises(PatchFailed, match=words) as caught:
        patches.apply_json_patch(target, [{"op": "test", "path": "", "value": target}, operation])
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    # RFC 7396, appendix A
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_json_merge_patch_does(target: Any, patch: Any, expected: Any) -> None:
    assert patches.apply_merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("kind", "target", "patch", "expected"),
    [pytest.param(*row[1:], id=row[0]) for row in STRATEGIC],
)
def test_strategic_merge(kind: str, target: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(target)
    assert patches.apply_strategic_merge(target, patch, kind) == expected
    assert target == before
