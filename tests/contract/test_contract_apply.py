"""Server-side apply: ownership, conflicts, removal."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body
from tests.contract.scenes import Stage, eventually, owned_by, version

pytestmark = pytest.mark.usefixtures("play")


def _image(body: dict[str, Any], image: str) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return changed


async def test_an_apply_creates_and_owns_what_it_states(stage: Stage, /) -> None:
    made = (await stage.apply(stage.daemonset())).body
    assert made["metadata"]["generation"] == 1
    assert owned_by(made, "one") == {
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                            "f:image": {},
                            "f:name": {},
                            "f:ports": {
                                'k:{"containerPort":80,"protocol":"TCP"}': {
                                    ".": {},
                                    "f:containerPort": {},
                                }
                            },
                        }
                    }
                },
            },
        },
    }


async def test_an_apply_reports_whether_it_created_the_object(stage: Stage, /) -> None:
    for dry_run, created in ((True, True), (False, True), (False, False), (True, False)):
        done = await stage.apply(stage.daemonset(), dry_run=dry_run)
        assert done.created is created


async def test_the_same_again_changes_nothing(stage: Stage, /) -> None:
    first = (await stage.apply(stage.daemonset())).body
    again = (await stage.apply(stage.daemonset())).body
    assert again == first


async def test_a_change_bumps_the_generation(stage: Stage, /) -> None:
    first = (await stage.apply(stage.daemonset())).body
    second = (await stage.apply(_image(stage.daemonset(), "nginx:2"))).body
    assert second["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    assert (first["metadata"]["generation"], second["metadata"]["generation"]) == (1, 2)


async def test_a_field_no_longer_stated_goes_away_and_its_default_returns(stage: Stage, /) -> None:
    body = stage.daemonset(minReadySeconds=5, revisionHistoryLimit=3)
    body["metadata"]["annotations"] = {"a": "1", "b": "2"}
    body["spec"]["template"]["spec"]["nodeSelector"] = {"x": "y"}
    body["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "s:1"})
    await stage.apply(body)
    less = stage.daemonset()
    less["metadata"]["annotations"] = {"a": "1"}
    after = (await stage.apply(less)).body
    assert "minReadySeconds" not in after["spec"]
    assert after["spec"]["revisionHistoryLimit"] == 10
    assert "b" not in after["metadata"]["annotations"]
    assert "nodeSelector" not in after["spec"]["template"]["spec"]
    assert [c["name"] for c in after["spec"]["template"]["spec"]["containers"]] == ["c"]


async def test_a_field_of_another_applier_is_a_conflict_with_its_name(stage: Stage, /) -> None:
    await stage.apply(stage.daemonset(), "one")
    field = '.spec.template.spec.containers[name="c"].image'
    with pytest.raises(errors.Conflict) as caught:
        await stage.apply(_image(stage.daemonset(), "nginx:2"), "two")
    assert str(caught.value) == f'Apply failed with 1 conflict: conflict with "one": {field}'
    assert caught.value.causes == (
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": field},
    )
    after = (await stage.apply(_image(stage.daemonset(), "nginx:2"), "two", force=True)).body
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    container = 'k:{"name":"c"}'
    fields = owned_by(after, "one")["f:spec"]["f:template"]["f:spec"]["f:containers"][container]
    assert "f:image" not in fields


async def test_a_field_that_was_written_otherwise_is_a_conflict_too(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset())
    body = _image(stage.daemonset(), "nginx:2")
    body["metadata"]["labels"] = {"app": "x"}
    with pytest.raises(errors.Conflict) as caught:
        await stage.apply(body, "two")
    assert str(caught.value) == (
        'Apply failed with 2 conflicts: conflicts with "gitops-ds" using apps/v1:\n- '
        ".metadata.labels.app\n"
        '- .spec.template.spec.containers[name="c"].image'
    )
    assert [c["field"] for c in caught.value.causes] == [
        ".metadata.labels.app",
        '.spec.template.spec.containers[name="c"].image',
    ]


async def test_a_field_of_two_managers_is_removed_with_the_second(stage: Stage, /) -> None:
    await stage.apply(stage.config_map("c", {"mine": "1", "shared": "2"}), "one")
    both = (await stage.apply(stage.config_map("c", {"shared": "2"}), "two")).body
    assert owned_by(both, "two") == {"f:data": {"f:shared": {}}}
    left = (await stage.apply(stage.config_map("c", {}), "one")).body
    assert left["data"] == {"shared": "2"}
    with pytest.raises(errors.Conflict):
        await stage.apply(stage.config_map("c", {"shared": "3"}), "one")
    none = (await stage.apply(stage.config_map("c"), "two")).body
    assert "data" not in none


async def test_items_of_a_keyed_list_have_owners_of_their_own(stage: Stage, /) -> None:
    await stage.apply(stage.daemonset(), "one")
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": stage.namespace},
        "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s:1"}]}}},
    }
    after = (await stage.apply(body, "two")).body
    assert {c["name"] for c in after["spec"]["template"]["spec"]["containers"]} == {"c", "side"}
    env = {"name": "c", "env": [{"name": "B", "value": "2"}]}
    body["spec"]["template"]["spec"]["containers"] = [env]
    after = (await stage.apply(body, "two")).body
    (container,) = after["spec"]["template"]["spec"]["containers"]
    assert [e["name"] for e in container["env"]] == ["A", "B"]
    assert version((await stage.apply(stage.daemonset(), "one")).body) == version(after)


async def test_a_selector_is_owned_as_one(stage: Stage, /) -> None:
    body = stage.daemonset()
    body["spec"]["template"]["spec"]["nodeSelector"] = {"a": "1"}
    await stage.apply(body, "one")
    body["spec"]["template"]["spec"]["nodeSelector"] = {"b": "1"}
    with pytest.raises(
        errors.Conflict, match=r"conflict with \"one\": .spec.template.spec.nodeSelector$"
    ):
        await stage.apply(body, "two")


async def test_a_dry_run_returns_the_result_and_changes_nothing(stage: Stage, /) -> None:
    applied = (await stage.apply(stage.daemonset(), dry_run=True)).body
    assert applied["spec"]["revisionHistoryLimit"] == 10
    with pytest.raises(errors.NotFound):
        await stage.cluster.get(DAEMONSET, stage.namespace, "agent")
    first = (await stage.apply(stage.daemonset())).body
    applied = (await stage.apply(_image(stage.daemonset(), "nginx:2"), dry_run=True)).body
    assert applied["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    assert (applied["metadata"]["generation"], version(applied)) == (2, version(first))
    assert await stage.cluster.get(DAEMONSET, stage.namespace, "agent") == first


UNFIT = [
    ({"foo": 1}, ".spec.foo: field not declared in schema"),
    (
        {"minReadySeconds": "x"},
        ".spec.minReadySeconds: expected numeric (int or float), got string",
    ),
    (
        {"template": {"spec": {"hostNetwork": "yes"}}},
        ".spec.template.spec.hostNetwork: expected boolean, got &{yes}",
    ),
    (
        {"template": {"spec": {"containers": [{"name": "c", "imag": "x"}]}}},
        'containers[name="c"].imag: field not declared',
    ),
    (
        {"template": {"spec": {"nodeSelector": "x"}}},
        ".spec.template.spec.nodeSelector: expected map, got &{x}",
    ),
    (
        {"template": {"spec": {"containers": "x"}}},
        ".spec.template.spec.containers: expected list, got &{x}",
    ),
    (
        {"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}},
        '.spec.template.spec.containers: duplicate entries for key [name="a"]',
    ),
    (
        {"template": {"spec": {"nodeSelector": {"a": True}}}},
        (
            ".spec.template.spec.nodeSelector.a: expected string, got "
            "&value.valueUnstructured{Value:true}"
        ),
    ),
]


async def test_the_time_of_a_manager_is_that_of_its_last_change(stage: Stage, /) -> None:
    def time(body: Body, manager: str) -> str:
        return next(
            str(entry["time"])
            for entry in body["metadata"]["managedFields"]
            if entry["manager"] == manager
        )

    first = (await stage.apply(stage.config_map("c", {"a": "0"}))).body
    number = 0

    async def moves() -> bool:
        nonlocal number
        number += 1
        return time(
            (await stage.apply(stage.config_map("c", {"a": str(number)}))).body, "one"
        ) > time(first, "one")

    await eventually(moves)
    again = (await stage.apply(stage.config_map("c", {"a": str(number)}))).body
    assert time(again, "one") == time(
        (await stage.apply(stage.config_map("c", {"a": str(number)}))).body, "one"
    )
    patch = {"data": {"b": "0"}}
    patched = await stage.cluster.patch(CONFIG_MAP, stage.namespace, "c", patch)
    (writer,) = (
        entry["manager"]
        for entry in patched["metadata"]["managedFields"]
        if entry["manager"] != "one"
    )

    async def moves_too() -> bool:
        nonlocal number
        number += 1
        body = await stage.cluster.patch(
            CONFIG_MAP, stage.namespace, "c", {"data": {"b": str(number)}}
        )
        return time(body, writer) > time(patched, writer)

    await eventually(moves_too)


@pytest.mark.parametrize(("spec", "message"), UNFIT)
async def test_an_unknown_field_or_a_wrong_type_is_refused(
    stage: Stage, /, spec: dict[str, Any], message: str
) -> None:
    body = {**stage.daemonset(), "spec": spec}
    with pytest.raises(errors.Invalid) as caught:
        await stage.apply(body)
    assert str(caught.value).startswith("failed to create typed patch object")
    assert message in str(caught.value)


async def test_an_apply_is_refused_as_every_other_write(stage: Stage, /) -> None:
    body = stage.daemonset()
    body["spec"]["selector"] = {"matchLabels": {"app": "b"}}
    with pytest.raises(errors.Invalid, match=r"`selector` does not match template `labels`"):
        await stage.apply(body)
    with pytest.raises(errors.Conflict, match="uid mismatch: the provided object specified uid x"):
        await stage.apply(stage.config_map("c", uid="x"))
    await stage.apply(stage.config_map("d", {"a": "1"}))
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await stage.apply(stage.config_map("d", {"a": "2"}, resourceVersion="1"))
    with pytest.raises(errors.BadRequest, match=r"metadata\.managedFields must be nil"):
        await stage.apply(stage.config_map("d", {"a": "2"}, managedFields=[{"manager": "x"}]))


async def test_ownership_can_be_moved_by_a_write_of_managed_fields(stage: Stage, /) -> None:
    """As `kubectl apply --server-side` takes over from client-side apply: the Update entry is
    rewritten as an Apply entry.
    """
    made = await stage.cluster.create(CONFIG_MAP, stage.config_map("c", {"a": "1", "b": "2"}))
    entry = dict(made["metadata"]["managedFields"][0], manager="one", operation="Apply")
    moved = {**made, "metadata": {**made["metadata"], "managedFields": [entry]}}
    after = await stage.cluster.replace(CONFIG_MAP, moved)
    assert [(e["manager"], e["operation"]) for e in after["metadata"]["managedFields"]] == [
        ("one", "Apply")
    ]
    less = (await stage.apply(stage.config_map("c", {"a": "1"}), "one")).body
    assert less["data"] == {"a": "1"}
