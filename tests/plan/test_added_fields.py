"""The fields of people in a live template that an apply takes back, one set of owners a row."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import added_fields
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import AddedFields, ApplyOptions, PlanContext
from gitops_ds.rollouts.state import keys
from tests.staging.staged_objects import KEY, live_object, manifest

AGENT = 'k:{"name":"agent"}'
NODE, HOST, TWO = {"f:nodeName": {}}, {"f:hostname": {}}, {"f:nodeName": {}, "f:hostname": {}}
RESTARTED = "kubectl.kubernetes.io/restartedAt"
POD, METADATA = "/spec/template/spec", "/spec/template/metadata"


def metadata(*annotations: str) -> dict[str, Any]:
    return {"f:metadata": {"f:annotations": {".": {}} | {f"f:{one}": {} for one in annotations}}}


def container(*fields: str) -> dict[str, Any]:
    return {"f:containers": {AGENT: {".": {}} | {f"f:{one}": {} for one in fields}}}


def taken(fields: dict[str, Any], *rules: IgnoreRule, by: str = "kubectl-edit") -> Any:
    """The fields of the template that are taken back, of those that a manager added."""
    live = live_object("1")
    template = live["spec"]["template"]
    template["spec"] |= {"nodeName": "n1", "hostname": "h"}
    template["spec"]["containers"][0]["tty"] = True
    template["metadata"]["annotations"] = {RESTARTED: "now", "note": "text"}
    entry = {"manager": by, "operation": "Update", "fieldsV1": {"f:spec": {"f:template": fields}}}
    live["metadata"]["managedFields"].append(entry)
    options = ApplyOptions(added_fields=AddedFields.ALL, ignore=rules)
    found = added_fields.of(manifest("1"), live, PlanContext(Stamp("test"), options))
    assert found.keys() <= {"f:spec"}
    return found["f:spec"]["f:template"] if found else {}


def ignoring(*paths: str, managers: tuple[str, ...] = ()) -> IgnoreRule:
    return IgnoreRule(paths, managers)


@pytest.mark.parametrize(
    ("added", "rule", "expected"),
    [
        ({"f:spec": NODE}, ignoring("/spec/minReadySeconds"), {"f:spec": NODE}),
        ({"f:spec": NODE}, ignoring(f"{POD}/nodeName"), {}),
        ({"f:spec": NODE}, ignoring(f"{POD}/hostname"), {"f:spec": NODE}),
        ({"f:spec": TWO}, ignoring(f"{POD}/hostname"), {"f:spec": NODE}),
        ({"f:spec": TWO}, ignoring(POD), {}),
        ({"f:spec": NODE}, ignoring(f"{POD}/nodeName", managers=("kubectl-edit",)), {}),
        ({"f:spec": NODE}, ignoring(f"{POD}/nodeName", managers=("other",)), {"f:spec": NODE}),
        ({"f:spec": NODE} | metadata("note"), ignoring(f"{POD}/nodeName"), metadata("note")),
        ({"f:spec": NODE} | metadata("note"), ignoring(f"{METADATA}/annotations/note"),
         {"f:spec": NODE}),
        ({"f:spec": container("tty")}, ignoring(f"{POD}/containers/agent/tty"), {}),
        ({"f:spec": container("tty") | NODE}, ignoring(f"{POD}/containers/agent/tty"),
         {"f:spec": NODE}),
        ({"f:spec": container("tty", "stdin")}, ignoring(f"{POD}/containers/agent/tty"),
         {"f:spec": {"f:containers": {AGENT: {"f:stdin": {}}}}}),
        ({"f:spec": NODE}, ignoring(f"{POD}/containers/agent/tty"), {"f:spec": NODE}),
    ],
)  # fmt: skip
def test_an_ignored_field_stays_and_the_others_are_taken_back(
    added: dict[str, Any], rule: IgnoreRule, expected: dict[str, Any]
) -> None:
    assert taken(added, rule) == expected


def test_the_annotation_of_a_restart_stays_and_another_is_taken_back() -> None:
    assert taken(metadata(RESTARTED)) == {}
    assert taken(metadata(RESTARTED, "note")) == {"f:metadata": {"f:annotations": {"f:note": {}}}}
    assert taken(metadata("note")) == metadata("note")


def test_what_a_controller_added_stays() -> None:
    assert taken({"f:spec": NODE}, by="autoscaler") == {}
    assert taken({"f:spec": NODE}, IgnoreRule(managers=("kubectl-edit",))) == {}


@pytest.mark.parametrize(
    ("choice", "kind", "has_policy", "is_taken"),
    [
        (AddedFields.ALL, "DaemonSet", False, True),
        (AddedFields.STAGED, "DaemonSet", False, False),
        (AddedFields.STAGED, "DaemonSet", True, True),
        (AddedFields.ALL, "Deployment", True, False),
    ],
)
def test_fields_are_taken_back_from_daemonsets_by_the_choice_of_the_settings(
    choice: AddedFields, kind: str, has_policy: bool, is_taken: bool
) -> None:
    live = live_object("1")
    live["spec"]["template"]["spec"]["nodeName"] = "n1"
    fields = {"f:spec": {"f:template": {"f:spec": NODE}}}
    entry = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": fields}
    live["metadata"]["managedFields"].append(entry)
    annotations = {keys.ROLLOUT_POLICY: "{}"} if has_policy else {}
    one = manifest("1", replace(KEY, kind=kind), annotations=annotations)
    context = PlanContext(Stamp("test"), ApplyOptions(added_fields=choice))
    assert added_fields.of(one, live, context) == (fields if is_taken else {})
