"""`holds`: after an apply it is true of the same body, and any one field that differs makes it
false.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body, Resource
from gitops_ds.ownership import ownership
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.plan.world import config_map, daemonset

AGENT = daemonset(
    containers=[
        {
            "name": "agent",
            "image": "agent:1",
            "args": ["--a", "--b"],
            "env": [{"name": "A", "value": "1"}, {"name": "EMPTY", "value": ""}],
            "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
            "volumeMounts": [{"name": "logs", "mountPath": "/logs", "readOnly": False}],
        }
    ],
    volumes=[{"name": "logs", "hostPath": {"path": "/var/log"}}],
    tolerations=[{"operator": "Exists"}],
    nodeSelector={"kubernetes.io/os": "linux"},
    hostNetwork=True,
    priorityClassName=None,
)


def applied(resource: Resource, body: Body) -> dict[str, Any]:
    async def scene() -> dict[str, Any]:
        async with simulator.SimulatedCluster() as cluster:
            await cluster.apply(resource, body, manager="gitops-ds")
            return dict(await cluster.get(resource, "default", str(body["metadata"]["name"])))

    return virtual_time.run(scene())


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The ways to all scalars."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    matched = False
    for key, below in items:
        matched = True
        yield from leaves(below, (*path, key))
    if not matched and path:
        yield path


def changed(body: Body, path: tuple[str | int, ...]) -> dict[str, Any]:
    """The body with another scalar there."""
    other: dict[str, Any] = copy.deepcopy(dict(body))
    at: Any = other
    for step in path[:-1]:
        at = at[step]
    old = at[path[-1]]
    at[path[-1]] = (
        not old
        if isinstance(old, bool)
        else old + 1
        if isinstance(old, int)
        else "7"
        if path[-2] == "limits"
        else f"{old}x"
    )
    return other


def test_an_applied_object_would_not_change() -> None:
    assert ownership.would_change_nothing(applied(DAEMONSET, AGENT), AGENT)
    assert ownership.would_change_nothing(
        applied(CONFIG_MAP, config_map("c", a="1")), config_map("c", a="1")
    )


OURS = [path for path in leaves(AGENT) if path[0] == "spec" and path[-1] != "priorityClassName"]


@pytest.mark.parametrize("path", OURS, ids=lambda path: ".".join(map(str, path)))
def test_a_field_that_git_changes_is_not_held(path: tuple[str | int, ...]) -> None:
    assert not ownership.would_change_nothing(applied(DAEMONSET, AGENT), changed(AGENT, path))


@pytest.mark.parametrize(
    "path",
    [p for p in OURS if p[-1] not in ("readOnly", "value")],
    ids=lambda path: ".".join(map(str, path)),
)
def test_a_field_that_changed_in_the_cluster_is_not_held(path: tuple[str | int, ...]) -> None:
    assert not ownership.would_change_nothing(changed(applied(DAEMONSET, AGENT), path), AGENT)


SAME = [
    ("limits", {"cpu": "500m", "memory": "1Gi"}),
    ("limits", {"cpu": 0.5, "memory": "1Gi"}),
]


@pytest.mark.parametrize(("name", "value"), SAME)
def test_another_spelling_of_the_same_amount_is_held(name: str, value: Any) -> None:
    body = copy.deepcopy(AGENT)
    body["spec"]["template"]["spec"]["containers"][0]["resources"][name] = value
    assert ownership.would_change_nothing(applied(DAEMONSET, AGENT), body)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("hostNetwork", None),
        ("nodeSelector", None),
        ("tolerations", []),
        ("volumes", []),
        ("dnsPolicy", "ClusterFirst"),
    ],
)
def test_a_field_that_git_drops_or_adds_is_not_held(part: str, value: Any) -> None:
    body = copy.deepcopy(AGENT)
    if value is None:
        del body["spec"]["template"]["spec"][part]
    else:
        body["spec"]["template"]["spec"][part] = value
    assert not ownership.would_change_nothing(applied(DAEMONSET, AGENT), body)


@pytest.mark.parametrize(
    ("part", "field"), [("affinity", "nodeAffinity"), ("dnsConfig", "options")]
)
def test_a_mapping_of_nulls_is_held_while_the_cluster_has_it(part: str, field: str) -> None:
    body = copy.deepcopy(AGENT)
    body["spec"]["template"]["spec"][part] = {field: None}
    live = applied(DAEMONSET, body)
    assert live["spec"]["template"]["spec"][part] == {}
    assert ownership.would_change_nothing(live, body)
    del live["spec"]["template"]["spec"][part]
    assert not ownership.would_change_nothing(live, body)


def test_the_owned_part_has_our_fields_alone_with_their_live_values() -> None:
    live = applied(DAEMONSET, AGENT)
    template = live["spec"]["template"]
    template["metadata"]["annotations"] = {"example.com/of": "another manager"}
    template["spec"]["hostNetwork"] = False
    part = ownership.owned_part(live, ("spec", "template"))
    assert "annotations" not in part["metadata"]
    assert part["metadata"]["labels"] == template["metadata"]["labels"]
    assert part["spec"]["hostNetwork"] is False
    assert "schedulerName" in template["spec"]
    assert "schedulerName" not in part["spec"]
    assert ownership.owned_part(live, ("spec", "missing")) is None


@pytest.mark.parametrize(
    ("wanted", "live", "path", "equal"),
    [
        ("a", "a", ("spec", "name"), True),
        (80, "80", ("spec", "port"), False),
        (1, True, ("spec", "on"), False),
        ("1000m", "1", ("spec", "name"), False),
        ("1000m", "1", ("resources", "limits", "cpu"), True),
        (2, "2", ("resources", "requests", "cpu"), True),
        (0.5, "500m", ("resources", "limits", "cpu"), True),
        ("1000m", "2", ("resources", "limits", "cpu"), False),
        ("many", "1", ("resources", "limits", "cpu"), False),
        ("1", 1, ("resources", "limits", "cpu"), False),
        (None, "1", ("resources", "limits", "cpu"), False),
    ],
)
def test_amounts_are_equal_by_their_value(
    wanted: Any, live: Any, path: tuple[str, ...], equal: bool
) -> None:
    assert ownership._equal(wanted, live, path) is equal


@pytest.mark.parametrize(
    ("owned", "wanted", "live", "holds"),
    [
        (["a"], ["a"], ["a"], True),
        (["a"], ["a"], ["a", "b"], True),  # the other is another owner's
        (["a"], ["a"], ["b"], False),
        (["a"], ["b"], ["a", "b"], False),
        (["a"], ["a", "b"], ["a", "b"], False),
        (["a", "b"], ["b", "a"], ["a", "b"], True),
        ([], ["a"], ["a"], False),
    ],
)
def test_a_set_is_held_by_its_owned_members(
    owned: list[str], wanted: list[str], live: list[str], holds: bool
) -> None:
    fields = {f'v:"{one}"': {} for one in owned}
    managed = [
        {
            "manager": "gitops-ds",
            "operation": "Apply",
            "fieldsV1": {"f:metadata": {"f:finalizers": fields}} if owned else {"f:data": {}},
        }
    ]
    body = {"metadata": {"finalizers": live, "managedFields": managed}}
    assert ownership.would_change_nothing(body, {"metadata": {"finalizers": wanted}}) is holds
    del body["metadata"]["managedFields"]
    assert not ownership.would_change_nothing(body, {"metadata": {"finalizers": wanted}})


def owning(fields: dict[str, Any], **live: Any) -> dict[str, Any]:
    entry = {"manager": "gitops-ds", "operation": "Apply", "fieldsV1": fields}
    return {"metadata": {"managedFields": [entry]}, **live}


@pytest.mark.parametrize(
    ("fields", "live", "part"),
    [
        ({'v:"a"': {}}, ["a", "b"], ["a"]),
        ({'v:"c"': {}}, ["a", "b"], []),
        ({"v:1": {}}, [1, 2], [1]),
        ({'k:{"name":"a"}': {".": {}, "f:name": {}}}, [{"name": "a", "x": 1}], [{"name": "a"}]),
        ({'k:{"name":"c"}': {".": {}}}, [{"name": "a"}], []),
        (
            {'k:{"port":1,"protocol":"TCP"}': {"f:port": {}}},
            [{"port": 1, "x": 2}, {"port": 2}],
            [{"port": 1}],
        ),
        ({}, ["a", "b"], ["a", "b"]),
        ({"f:x": {}}, {"x": 1, "y": 2}, {"x": 1}),
        ({"f:z": {}}, {"x": 1}, {}),
        ({"f:x": {}}, "text", "text"),
    ],
)
def test_the_owned_part_of_a_value(fields: dict[str, Any], live: Any, part: Any) -> None:
    body = owning({"f:spec": {"f:items": fields}}, spec={"items": live})
    assert ownership.owned_part(body, ("spec", "items")) == part


@pytest.mark.parametrize(
    ("owned", "wanted", "live", "holds"),
    [
        (["a"], {"a": 1}, {"a": 1}, True),
        (["a"], {"a": 1}, {"a": 1, "b": 2}, True),
        (["a"], {"a": 1, "b": None}, {"a": 1}, True),
        (["a"], {"a": 1, "l": []}, {"a": 1}, True),  # an empty list is owned as nothing
        (["a"], {"a": 1, "l": []}, {"a": 1, "l": []}, True),
        (["a"], {"a": 1, "l": []}, {"a": 1, "l": [1]}, False),
        (["a"], {"a": 1, "l": [1]}, {"a": 1, "l": [1]}, False),
        (["a", "l"], {"a": 1, "l": []}, {"a": 1, "l": []}, True),
        (["a", "b"], {"a": 1}, {"a": 1, "b": 2}, False),
        (["a"], {"a": 2}, {"a": 1}, False),
        (["a"], {"a": 1}, {}, False),
        (["n"], {"n": None}, {}, True),  # a null may be owned
        (["n"], {"n": None}, {"n": 1}, False),
    ],
)
def test_a_mapping_is_held_by_its_owned_fields(
    owned: list[str], wanted: dict[str, Any], live: dict[str, Any], holds: bool
) -> None:
    body = owning({"f:spec": {f"f:{name}": {} for name in owned}}, spec=live)
    assert ownership.would_change_nothing(body, {"spec": wanted}) is holds
    assert not ownership.would_change_nothing(body, {"spec": "text"})
    assert not ownership.would_change_nothing({**body, "spec": "text"}, {"spec": wanted})


@pytest.mark.parametrize(
    ("fields", "others", "left"),
    [
        ({"a": {"b": {}, "c": {}}}, {"a": {"b": {}}}, {"a": {"c": {}}}),
        ({"a": {"b": {}}}, {"a": {"b": {}}}, {}),
        ({"a": {"b": {}}, "d": {}}, {"a": {"b": {}}}, {"d": {}}),
    ],
)
def test_the_fields_that_are_not_in_another_set(
    fields: dict[str, Any], others: dict[str, Any], left: dict[str, Any]
) -> None:
    assert ownership.difference(fields, others) == left
