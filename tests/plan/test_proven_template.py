"""The template that is applied during a rollout, by fields that are ours, Git's, and others'."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.plan.rollouts import template_history
from tests.plan.staged_objects import OWNED, live_object, template

AGENT = 'k:{"name":"agent"}'
PORT = 'k:{"containerPort":80,"protocol":"TCP"}'
FIELDS: dict[str, Any] = {
    "f:spec": {
        "f:containers": {
            AGENT: {
                ".": {},
                "f:name": {},
                "f:image": {},
                "f:args": {},
                "f:ports": {PORT: {".": {}, "f:containerPort": {}}},
                "f:resources": {"f:limits": {"f:cpu": {}}},
            },
        },
        "f:finalizers": {'v:"a"': {}},
    },
}


def proven() -> dict[str, Any]:
    """A complete template: ours, with defaults and fields of others."""
    return {
        "metadata": {"labels": {"app": "agent"}, "annotations": {"other": "x"}},
        "spec": {
            "containers": [
                {
                    "name": "agent",
                    "image": "agent:1",
                    "args": ["--a", "--b"],
                    "imagePullPolicy": "IfNotPresent",
                    "ports": [
                        {"containerPort": 80, "protocol": "TCP"},
                        {"containerPort": 81, "protocol": "TCP"},
                    ],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                },
                {"name": "sidecar", "image": "sidecar:1", "env": [{"name": "A", "value": "1"}]},
            ],
            "finalizers": ["a", "b"],
            "dnsPolicy": "ClusterFirst",
        },
    }


def kept(wanted: dict[str, Any], fields: dict[str, Any] = FIELDS) -> Any:
    """The template that is applied, where an edit in the cluster changed the live one."""
    old = live_object("edited", fields=fields)
    return template_history.kept_template(old, wanted, proven())


OURS: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "agent",
                "image": "agent:1",
                "args": ["--a", "--b"],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}},
            }
        ],
        "finalizers": ["a"],
    }
}


def test_the_values_are_those_of_the_proven_revision_and_the_fields_ours() -> None:
    assert kept({}) == OURS


@pytest.mark.parametrize(
    ("wanted", "path", "value"),
    [
        ({"metadata": {"labels": {"app": "x"}}}, ("metadata",), {"labels": {"app": "agent"}}),
        ({"metadata": {"labels": {"new": "x"}}}, ("metadata",), {"labels": {}}),
        ({"spec": {"dnsPolicy": "Default"}}, ("spec", "dnsPolicy"), "ClusterFirst"),
        ({"spec": {"finalizers": ["b", "c"]}}, ("spec", "finalizers"), ["a", "b"]),
        (
            {"spec": {"containers": [{"name": "agent", "imagePullPolicy": "Always"}]}},
            ("spec", "containers"),
            [{**OURS["spec"]["containers"][0], "imagePullPolicy": "IfNotPresent"}],
        ),
        (
            {"spec": {"containers": [{"name": "agent", "ports": [{"containerPort": 81}]}]}},
            ("spec", "containers", 0, "ports"),
            [{"containerPort": 80}, {"containerPort": 81}],
        ),
        (
            {"spec": {"containers": [{"name": "sidecar", "env": [{"name": "A"}]}]}},
            ("spec", "containers", 1),
            {"name": "sidecar", "env": [{"name": "A", "value": "1"}]},
        ),
        ({"spec": {"containers": [{"name": "other"}]}}, ("spec",), OURS["spec"]),
        ({"spec": {"containers": "text"}}, ("spec",), OURS["spec"]),
        ({"spec": "text"}, ("spec",), OURS["spec"]),
    ],
)
def test_a_field_of_the_manifest_is_kept_too(
    wanted: dict[str, Any], path: tuple[Any, ...], value: Any
) -> None:
    found = kept(wanted)
    for step in path:
        found = found[step]
    assert found == value


def test_a_field_that_is_owned_as_a_whole_is_kept_as_a_whole() -> None:
    whole = {"f:spec": {"f:containers": {AGENT: {".": {}, "f:resources": {}}}}}
    resources = proven()["spec"]["containers"][0]["resources"]
    assert kept({}, whole) == {"spec": {"containers": [{"resources": resources}]}}
    assert kept({}, {"f:spec": {}}) == {"spec": proven()["spec"]}


def test_without_our_fields_those_of_the_manifest_count() -> None:
    assert kept({"spec": {"dnsPolicy": "Default"}}, {}) == {"spec": {"dnsPolicy": "ClusterFirst"}}


def test_a_live_template_that_is_proven_stays_for_any_manifest() -> None:
    old = live_object("1", fields=OWNED)
    old["spec"]["template"]["spec"]["dnsPolicy"] = "Default"
    complete = copy.deepcopy(old["spec"]["template"])
    assert template_history.kept_template(old, template("2"), complete) == template("1")
