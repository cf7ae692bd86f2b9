"""Differing fields, their owners, and the fields that only we own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.change import FieldChange
from gitops_ds.core.objects import ListMember
from gitops_ds.deploy.plan import drift, object_changes
from gitops_ds.ownership import diff, field_managers, ownership
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import keys, rollout_annotations


def entry(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def managed(*entries: dict[str, Any], **body: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "managedFields": list(entries)}, **body}


def member(**token: Any) -> str:
    return f"k:{json.dumps(token)}"


def items(*values: Any) -> dict[str, Any]:
    return {"spec": {"items": list(values)}}


DIFFERENCES: dict[str, tuple[list[Any], list[Any], list[tuple[Any, ...]]]] = {
    "members by name": (
        [{"name": "a", "v": 1}, {"name": "b", "v": 1}],
        [{"name": "a", "v": 1}, {"name": "b", "v": 2}],
        [("spec", "items", ListMember("b"), "v")],
    ),
    "a name twice: by place": (
        [{"name": "a", "v": 1}, {"name": "a", "v": 1}],
        [{"name": "a", "v": 1}, {"name": "a", "v": 2}],
        [("spec", "items", 1, "v")],
    ),
    "a member without a name: by place": (
        [{"name": "a", "v": 1}, {"v": 1}],
        [{"name": "a", "v": 1}, {"v": 2}],
        [("spec", "items", 1, "v")],
    ),
    "no names, another length: as a whole": ([{"v": 1}], [{"v": 1}, {"v": 2}], [("spec", "items")]),
    "values: as a whole": (["a"], ["b"], [("spec", "items")]),
    "another order": (
        [{"name": "a"}, {"name": "b"}],
        [{"name": "b"}, {"name": "a"}],
        [("spec", "items", ListMember("order"))],
    ),
    "another order and another member": (
        [{"name": "a"}, {"name": "b"}],
        [{"name": "c"}, {"name": "a"}],
        [("spec", "items", ListMember("b")), ("spec", "items", ListMember("c"))],
    ),
    "an empty list": ([], [{"name": "a"}], [("spec", "items")]),
    "the same": ([{"name": "a"}], [{"name": "a"}], []),
}


@pytest.mark.parametrize(("old", "new", "paths"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_list_is_compared_by_its_names_if_they_are_unique(
    old: list[Any], new: list[Any], paths: list[tuple[Any, ...]]
) -> None:
    assert [change.path for change in diff.compare(items(*old), items(*new))] == paths


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {names.TEMPLATE_GENERATION: "2"}},
        {"annotations": {}, "labels": {}},
        {"labels": {}},
        {"labels": None},
    ],
)
def test_empty_metadata_equals_absent_metadata(metadata: dict[str, Any]) -> None:
    assert diff.compare({"metadata": metadata}, {"metadata": {}}) == ()


AGENT = {"name": "agent", "args": ["-v"], "image": "a:1"}
CONTAINERS: tuple[Any, ...] = ("spec", "containers")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (("metadata", "finalizers", 0), "first"),
        (("metadata", "finalizers", 1), "second"),
        ((*CONTAINERS, ListMember("agent"), "image"), "third"),
        ((*CONTAINERS, 0, "image"), "third"),
        ((*CONTAINERS, 0, "args", 0), "fourth"),
        ((*CONTAINERS, 1, "image"), None),
        ((*CONTAINERS, 2, "image"), None),
        ((*CONTAINERS, ListMember("missing"), "image"), None),
        ((*CONTAINERS, 0, "command"), None),
    ],
)
def test_the_owner_of_a_value_is_that_of_the_deepest_owned_field(
    path: tuple[Any, ...], owner: str | None
) -> None:
    agent = member(name="agent")
    live = managed(
        entry("first", {"f:metadata": {"f:finalizers": {'v:"x"': {}}}}),
        entry("second", {"f:metadata": {"f:finalizers": {'v:"y"': {}}}}),
        entry("third", {"f:spec": {"f:containers": {agent: {"f:image": {}}}}}),
        entry("fourth", {"f:spec": {"f:containers": {agent: {"f:args": {}}}}}),
        spec={"containers": [AGENT, {"name": "other", "image": "b"}]},
    )
    live["metadata"]["finalizers"] = ["x", "y"]
    assert [one.manager for one in field_managers.owners(live, path)] == ([owner] if owner else [])


@pytest.mark.parametrize(
    ("entries", "applied"),
    [
        ([], True),  # its owners are unknown
        ([entry(names.FIELD_MANAGER, {}, operation="Apply"), entry("other", {})], True),
        ([entry("other", {})], False),
    ],
)
def test_an_object_is_ours_by_its_apply(entries: list[dict[str, Any]], applied: bool) -> None:
    assert field_managers.is_applied(managed(*entries)) is applied


def test_a_removed_field_was_removed_by_the_last_writer_of_the_object() -> None:
    live = managed(
        entry("first", {}, time="2026-01-01T00:00:00Z"),
        entry("third", {}, time="2026-01-03T00:00:00Z"),
        entry("second", {}, time="2026-01-02T00:00:00Z"),
        entry("status", {}, time="2026-01-04T00:00:00Z", subresource="status"),
        entry(names.FIELD_MANAGER, {}, time="2026-01-05T00:00:00Z", operation="Apply"),
    )
    changes = [FieldChange(("spec", "x"), 1, None)]
    assert [author.manager for author in drift.authors(live, changes)] == ["third"]
    assert drift.authors(managed(), changes) == ()


def test_the_authors_of_fields_are_named_the_latest_first() -> None:
    live = managed(
        entry("first", {"f:spec": {"f:x": {}}}, time="2026-01-01T00:00:00Z"),
        entry("second", {"f:spec": {"f:y": {}}}, time="2026-01-02T00:00:00Z"),
        entry("elsewhere", {"f:spec": {"f:z": {}}}, time="2026-01-03T00:00:00Z"),
        spec={"x": 1, "y": 1, "z": 1},
    )
    changes = [FieldChange(("spec", name), 0, 1) for name in ("x", "y")]
    assert [author.manager for author in drift.authors(live, changes)] == ["second", "first"]


def test_a_member_of_a_list_that_git_no_longer_has_goes_alone() -> None:
    ours = {"f:spec": {"f:items": {member(name=name): {".": {}, "f:name": {}} for name in "ac"}}}
    live = managed(
        entry(names.FIELD_MANAGER, ours, operation="Apply"),
        **items({"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}),
    )
    kept = ownership.without_abandoned(live, items({"name": "c"}), live)
    assert kept["spec"]["items"] == [{"name": "b"}, {"name": "c"}, {"name": "d"}]


def test_a_migration_takes_added_fields_from_people_but_not_from_controllers_and_subresources() -> (
    None
):
    fields = {"f:spec": {"f:x": {}, "f:y": {}}}
    person, alone = entry("kubectl-edit", fields), entry("kubectl-patch", {"f:spec": {"f:x": {}}})
    scale = entry("kubectl-scale", {"f:spec": {"f:x": {}}}, subresource="scale")
    controller = entry("vpa", fields)
    live = managed(person, alone, scale, controller, apiVersion="v1")
    first, *rest = ownership.migrated(live, {"f:spec": {"f:x": {}}})
    assert first["fieldsV1"] == {"f:spec": {"f:x": {}}}
    assert rest == [{**person, "fieldsV1": {"f:spec": {"f:y": {}}}}, scale, controller]


def test_a_migration_takes_over_exactly_the_fields_of_client_side_applies() -> None:
    ours = entry(names.FIELD_MANAGER, {"f:spec": {"f:x": {}}}, operation="Apply")
    status = entry(names.FIELD_MANAGER, {"f:status": {}}, operation="Apply", subresource="status")
    update = entry(names.FIELD_MANAGER, {"f:spec": {"f:u": {}}})
    theirs = entry("kubectl-client-side-apply", {"f:spec": {"f:y": {}}})
    applied = entry("kubectl-client-side-apply", {"f:spec": {"f:w": {}}}, operation="Apply")
    other = entry("someone", {"f:spec": {"f:z": {}}}, operation="Apply")
    live = managed(ours, status, update, theirs, applied, other, apiVersion="v1")
    first, *rest = ownership.migrated(live)
    assert (first["manager"], first["operation"]) == (names.FIELD_MANAGER, "Apply")
    assert first["fieldsV1"] == {"f:spec": {"f:x": {}, "f:y": {}}}
    assert rest == [status, update, applied, other]
    assert ownership.needs_migration(live)
    assert not ownership.needs_migration({"metadata": {"managedFields": rest}})


def test_a_migration_leaves_the_annotations_that_a_rollout_reads_with_their_writer() -> None:
    proven: dict[str, Any] = {f"f:{keys.PROVEN}": {}}
    annotations = {".": {}, "f:x": {}, **proven}
    both = {"f:metadata": {"f:annotations": annotations}, "f:spec": {"f:y": {}}}
    foreign = {"f:metadata": {"f:annotations": proven}}
    live = managed(entry("kubectl-replace", both), apiVersion="v1")
    ours, *rest = ownership.migrated(live)
    assert ours["fieldsV1"] == {
        "f:metadata": {"f:annotations": {"f:x": {}}},
        "f:spec": {"f:y": {}},
    }
    assert [(one["manager"], one["fieldsV1"]) for one in rest] == [("kubectl-replace", foreign)]
    live["metadata"] |= {"managedFields": rest, "annotations": {keys.PROVEN: "{}"}}
    assert not ownership.needs_migration(live)
    assert [*rollout_annotations.foreign(live, keys.READ_BY_ROLLOUTS)] == [keys.PROVEN]


MARKS: dict[str, dict[str, dict[str, str]]] = {
    "argocd-controller": {"annotations": {"argocd.argoproj.io/tracking-id": "agents:x"}},
    "argocd-application-controller": {"labels": {"app.kubernetes.io/instance": "agents"}},
    "helm": {"annotations": {"meta.helm.sh/release-name": "agents"}},
    "helm-controller": {"labels": {"helm.toolkit.fluxcd.io/name": "agents"}},
    "kustomize-controller": {"labels": {"kustomize.toolkit.fluxcd.io/name": "agents"}},
}


@pytest.mark.parametrize("operation", ["Apply", "Update"])
@pytest.mark.parametrize("manager", MARKS)
def test_the_first_apply_takes_the_fields_of_the_tool_that_marked_the_object(
    manager: str, operation: str
) -> None:
    tool = entry(manager, {"f:spec": {"f:y": {}}}, operation=operation)
    status = entry(manager, {"f:status": {}}, operation=operation, subresource="status")
    other = entry("someone", {"f:spec": {"f:z": {}}}, operation="Apply")
    live = managed(tool, status, other, apiVersion="v1", spec={"y": 1, "z": 1})
    assert not ownership.needs_migration(live), "a namespace that Argo CD created, for example"
    live["metadata"] |= MARKS[manager]
    first, *rest = ownership.migrated(live)
    assert first["fieldsV1"] == {"f:spec": {"f:y": {}}}
    assert rest == [status, other]
    assert ownership.needs_migration(live)
    assert ownership.without_abandoned(live, {}, {"spec": {"y": 1, "z": 1}}) == {"spec": {"z": 1}}


def test_the_first_apply_takes_the_fields_of_a_server_side_apply_of_kubectl() -> None:
    kubectl = entry("kubectl", {"f:spec": {"f:y": {}}}, operation="Apply")
    edit = entry("kubectl", {"f:spec": {"f:z": {}}})
    assert ownership.migrated(managed(kubectl, edit, apiVersion="v1"))[1:] == [edit]


def test_an_object_that_is_ours_leaves_other_tools_their_fields() -> None:
    tools = [entry(name, {"f:spec": {}}, operation="Apply") for name in ("helm", "kubectl")]
    live = managed(*tools, apiVersion="v1")
    live["metadata"]["labels"] = {names.OWNER_LABEL: "one"}
    live["metadata"] |= MARKS["helm"]
    assert not ownership.needs_migration(live)


def test_our_own_fields_that_left_git_are_omitted() -> None:
    fields = {
        "f:metadata": {"f:finalizers": {'v:"x"': {}, 'v:"y"': {}}},
        "f:spec": {
            "f:containers": {
                member(name="a"): {".": {}, "f:image": {}, "f:tty": {}},
                member(name="b"): {".": {}, "f:image": {}},
            },
            "f:x": {},
            "f:y": {"f:z": {}},
        },
    }
    body: dict[str, Any] = {
        "spec": {
            "containers": [
                {"name": "a", "image": "a:1", "tty": True, "stdin": True},
                {"name": "b", "image": "b:1"},
                {"name": "c", "image": "c:1"},
            ],
            "x": 1,
            "y": {"z": 1},
            "w": 1,
        },
    }
    live = managed(entry(names.FIELD_MANAGER, fields, operation="Apply"), **body)
    live["metadata"]["finalizers"] = ["x", "y", "z"]
    expected = {
        "metadata": {"name": "a", "finalizers": ["x"]},
        "spec": {"containers": [{"name": "a", "image": "a:1"}]},
    }
    left = ownership.without_abandoned(live, expected, live)
    assert left["metadata"]["finalizers"] == ["x", "z"]
    assert left["spec"] == {
        "containers": [
            {"name": "a", "image": "a:1", "stdin": True},
            {"name": "c", "image": "c:1"},
        ],
        "w": 1,
    }


def test_a_generated_client_is_not_a_person() -> None:
    assert not field_managers.is_person("OpenAPI-Generator")
    assert field_managers.is_person("kubectl-edit")


def test_an_answer_that_only_moves_a_time_changes_nothing() -> None:
    one = managed(entry("a", {"f:spec": {}}, time="2026-01-01T00:00:00Z"), spec={"x": 1})
    later = managed(entry("a", {"f:spec": {}}, time="2026-01-02T00:00:00Z"), spec={"x": 1})
    other_owner = managed(entry("b", {"f:spec": {}}, time="2026-01-01T00:00:00Z"), spec={"x": 1})
    other_value = managed(entry("a", {"f:spec": {}}, time="2026-01-01T00:00:00Z"), spec={"x": 2})
    assert object_changes._unchanged(one, later)
    assert not object_changes._unchanged(one, other_owner)
    assert not object_changes._unchanged(one, other_value)
    assert object_changes._unchanged(managed(), {"metadata": {"name": "a"}})


def test_the_order_of_a_list_is_owned_by_the_owners_of_its_members() -> None:
    agent, other = member(name="agent"), member(name="other")
    fields = {"f:spec": {"f:containers": {agent: {"f:image": {}}, other: {"f:image": {}}}}}
    live = managed(
        entry("orderer", fields),
        entry("elsewhere", {"f:spec": {"f:x": {}}}),
        spec={"containers": [AGENT, {"name": "other", "image": "b"}], "x": 1},
    )
    order = FieldChange((*CONTAINERS, ListMember("order")), ["a"], ["b"])
    assert [author.manager for author in drift.authors(live, [order])] == ["orderer"]


@pytest.mark.parametrize(
    ("expected", "live", "holds"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ("text", {"a": 1}, False),
        (["a"], {"a": 1}, False),
        ({"a": 1}, "text", False),
        ({"a": 1}, None, False),
    ],
)
def test_a_value_of_another_shape_is_not_held(expected: Any, live: Any, holds: bool) -> None:
    fields = {"f:data": {"f:x": {"f:a": {}}}}
    ours = entry(names.FIELD_MANAGER, fields, operation="Apply")
    kind = {"apiVersion": "example.com/v1", "kind": "Thing"}
    there = {**managed(ours, data={"x": live}), **kind}
    body = {**kind, "metadata": {}, "data": {"x": expected}}
    assert ownership.would_change_nothing(there, body) == holds


def test_without_options_an_apply_waits_five_minutes_and_compares_every_ten() -> None:
    assert ApplyOptions() == ApplyOptions(patience=300.0, compare_every=600.0, adopt=False)
