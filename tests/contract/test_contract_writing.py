"""Create, replace, patch: what is stored, counted and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET
from gitops_ds.kube.apimachinery.builtin_resources import RESOURCES
from tests.contract.scenes import Stage, eventually, version

pytestmark = pytest.mark.usefixtures("play")

GENERATION = "deprecated.daemonset.template.generation"
MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


async def test_a_daemonset_is_stored_with_its_defaults(stage: Stage, /) -> None:
    made = await stage.cluster.create(DAEMONSET, stage.daemonset())
    assert made["spec"] == {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "nginx:1",
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "env": [{"name": "A", "value": "1"}],
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                        "imagePullPolicy": "IfNotPresent",
                    }
                ],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst",
                "securityContext": {},
                "schedulerName": "default-scheduler",
            },
        },
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
        "revisionHistoryLimit": 10,
    }
    assert made["status"] == {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["annotations"] == {GENERATION: "1"}
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"].endswith("Z")


async def test_a_statefulset_is_stored_with_its_defaults(stage: Stage, /) -> None:
    body = {**stage.daemonset("set"), "kind": "StatefulSet"}
    made = await stage.cluster.create(RESOURCES["apps", "StatefulSet"], body)
    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"partition": 0, "maxUnavailable": 1},
    }


async def test_a_name_that_is_taken_already_exists(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset("a"))
    with pytest.raises(errors.AlreadyExists, match=r'^daemonsets.apps "a" already exists$'):
        await stage.cluster.create(DAEMONSET, stage.daemonset("a"))


async def test_a_missing_namespace_is_not_found(stage: Stage, /) -> None:
    lost = Stage(stage.cluster, "nowhere")
    with pytest.raises(errors.NotFound, match=r'^namespaces "nowhere" not found$'):
        await stage.cluster.create(DAEMONSET, lost.daemonset())
    with pytest.raises(errors.NotFound, match=r'^namespaces "nowhere" not found$'):
        await lost.apply(lost.daemonset())


async def test_generations_count_changes_of_the_spec_and_of_the_template(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset())

    async def counts(patch: Any, subresource: str = "") -> tuple[int, str]:
        body = await stage.cluster.patch(
            DAEMONSET, stage.namespace, "agent", patch, subresource=subresource
        )
        return body["metadata"]["generation"], body["metadata"]["annotations"][GENERATION]

    assert await counts({"metadata": {"labels": {"more": "1"}}}) == (1, "1")
    assert await counts({"metadata": {"annotations": {GENERATION: "7"}}}) == (1, "1")
    assert await counts({"spec": {"minReadySeconds": 3}}) == (2, "1")
    assert await counts({"spec": {"template": {"metadata": {"annotations": {"a": "1"}}}}}) == (
        3,
        "2",
    )
    assert await counts({"spec": {"template": {"metadata": {"annotations": None}}}}) == (4, "3")
    assert await counts({"status": {"numberReady": 2}}, "status") == (4, "3")


async def test_spec_and_status_change_by_their_own_roads(stage: Stage, /) -> None:
    patch = {"spec": {"minReadySeconds": 9}, "status": {"numberReady": 5}}
    await stage.cluster.create(DAEMONSET, stage.daemonset())
    body = await stage.cluster.patch(
        DAEMONSET, stage.namespace, "agent", patch, subresource="status"
    )
    assert (body["spec"].get("minReadySeconds"), body["status"]["numberReady"]) == (None, 5)
    body = await stage.cluster.patch(
        DAEMONSET, stage.namespace, "agent", {**patch, "status": {"numberReady": 6}}
    )
    assert (body["spec"]["minReadySeconds"], body["status"]["numberReady"]) == (9, 5)


async def test_a_replacement_of_an_older_version_is_a_conflict(stage: Stage, /) -> None:
    first = await stage.cluster.create(CONFIG_MAP, stage.config_map("c", {"a": "1"}))
    second = await stage.cluster.replace(CONFIG_MAP, {**first, "data": {"a": "2"}})
    assert int(version(second)) > int(version(first))
    with pytest.raises(errors.Conflict) as caught:
        await stage.cluster.replace(CONFIG_MAP, {**first, "data": {"a": "3"}})
    assert str(caught.value) == f'Operation cannot be fulfilled on configmaps "c": {MODIFIED}'
    assert caught.value.reason == "Conflict"
    with pytest.raises(errors.NotFound):
        await stage.cluster.replace(CONFIG_MAP, stage.config_map("d", {}))


async def test_a_write_that_changes_nothing_keeps_the_version(stage: Stage, /) -> None:
    first = await stage.cluster.create(DAEMONSET, stage.daemonset())
    assert version(await stage.cluster.replace(DAEMONSET, first)) == version(first)
    same = await stage.cluster.patch(
        DAEMONSET, stage.namespace, "agent", {"spec": {"revisionHistoryLimit": 10}}
    )
    assert version(same) == version(first)


async def test_patches_of_three_kinds(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset())

    async def patched(patch: Any, type: PatchType) -> dict[str, Any]:
        body = await stage.cluster.patch(DAEMONSET, stage.namespace, "agent", patch, type=type)
        spec: dict[str, Any] = body["spec"]["template"]["spec"]
        return spec

    def template(**spec: Any) -> Any:
        return {"spec": {"template": {"spec": spec}}}

    pod = await patched(
        template(containers=[{"name": "c", "image": "nginx:2"}]), PatchType.STRATEGIC
    )
    assert (pod["containers"][0]["image"], pod["containers"][0]["env"]) == (
        "nginx:2",
        [{"name": "A", "value": "1"}],
    )
    pod = await patched(
        template(containers=[{"name": "c", "env": [{"name": "B", "value": "2"}]}]),
        PatchType.STRATEGIC,
    )
    assert sorted(e["name"] for e in pod["containers"][0]["env"]) == ["A", "B"]
    gone = {"name": "c", "env": [{"name": "A", "$patch": "delete"}]}
    pod = await patched(template(containers=[gone]), PatchType.STRATEGIC)
    assert pod["containers"][0]["env"] == [{"name": "B", "value": "2"}]
    pod = await patched(template(containers=[{"name": "c", "image": "nginx:3"}]), PatchType.MERGE)
    assert "env" not in pod["containers"][0]
    path = "/spec/template/spec/containers/0/image"
    pod = await patched([{"op": "replace", "path": path, "value": "nginx:4"}], PatchType.JSON)
    assert pod["containers"][0]["image"] == "nginx:4"
    for bad in (
        {"op": "test", "path": path, "value": "nginx:9"},
        {"op": "remove", "path": "/spec/nothing"},
    ):
        with pytest.raises(errors.Invalid) as caught:
            await patched([bad], PatchType.JSON)
        assert caught.value.status == 422


async def test_a_patch_guards_by_uid_and_version(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset())
    with pytest.raises(errors.Invalid) as wrong:
        await stage.cluster.patch(DAEMONSET, stage.namespace, "agent", {"metadata": {"uid": "x"}})
    assert wrong.value.causes[0]["field"] == "metadata.uid"
    stale = {"metadata": {"resourceVersion": "1", "labels": {"q": "1"}}}
    with pytest.raises(errors.Conflict):
        await stage.cluster.patch(DAEMONSET, stage.namespace, "agent", stale)


async def test_a_replacement_of_another_uid_is_a_conflict(stage: Stage, /) -> None:
    """Unlike in a patch, where the UID is an immutable field (422): an update takes the UID as its
    precondition.
    """
    first = await stage.cluster.create(CONFIG_MAP, stage.config_map("c", {"a": "1"}))
    await stage.cluster.delete(CONFIG_MAP, stage.namespace, "c")
    second = await stage.cluster.create(CONFIG_MAP, stage.config_map("c", {"a": "2"}))
    stale = {key: value for key, value in first["metadata"].items() if key != "resourceVersion"}
    for metadata in (first["metadata"], stale):
        with pytest.raises(errors.Conflict) as caught:
            await stage.cluster.replace(CONFIG_MAP, {**first, "metadata": metadata})
        precondition = (
            f"UID in precondition: {first['metadata']['uid']}, UID in object meta: "
            f"{second['metadata']['uid']}"
        )
        assert (caught.value.status, precondition in str(caught.value)) == (409, True)


async def test_an_object_has_one_controller(stage: Stage, /) -> None:
    async def owner(name: str, **more: Any) -> dict[str, Any]:
        made = await stage.cluster.create(CONFIG_MAP, stage.config_map(name, {}))
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name,
            "uid": made["metadata"]["uid"],
            **more,
        }

    first, second = await owner("one", controller=True), await owner("two", controller=True)
    with pytest.raises(errors.Invalid) as caught:
        await stage.cluster.create(
            CONFIG_MAP, stage.config_map("c", {}, ownerReferences=[first, second])
        )
    assert (caught.value.status, caught.value.causes[0]["field"]) == (
        422,
        "metadata.ownerReferences",
    )
    message = (
        'Only one reference can have Controller set to true. Found "true" in references for '
        "ConfigMap/one and ConfigMap/two"
    )
    assert str(caught.value).endswith(message)
    await stage.cluster.create(
        CONFIG_MAP, stage.config_map("c", {}, ownerReferences=[first, await owner("three")])
    )
    patch = {"metadata": {"ownerReferences": [second]}}
    with pytest.raises(errors.Invalid, match="Only one reference can have Controller set to true"):
        await stage.cluster.patch(CONFIG_MAP, stage.namespace, "c", patch, type=PatchType.STRATEGIC)


async def test_the_selector_is_immutable(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset())
    with pytest.raises(errors.Invalid) as caught:
        await stage.cluster.patch(
            DAEMONSET,
            stage.namespace,
            "agent",
            {"spec": {"selector": {"matchLabels": {"app": "b"}}}},
        )
    assert str(caught.value) == (
        'DaemonSet.apps "agent" is invalid: [spec.selector: Invalid value: '
        '{"matchLabels":{"app":"b"}}: field is immutable, '
        'spec.template.metadata.labels: Invalid value: {"app":"agent"}: `selector` does not '
        "match template `labels`]"
    )
    assert caught.value.causes[0] == {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: {"matchLabels":{"app":"b"}}: field is immutable',
        "field": "spec.selector",
    }


def _rolling(**numbers: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["spec"].update(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": numbers}
    )


def _pod(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["spec"]["template"]["spec"].update(fields)


def _spec(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["spec"].update(fields)


STRATEGY = "spec.updateStrategy.rollingUpdate"
REFUSED: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    (
        "no room at all",
        _rolling(maxUnavailable=0),
        f"{STRATEGY}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
    ),
    (
        "both",
        _rolling(maxUnavailable=1, maxSurge=1),
        f"{STRATEGY}.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
    ),
    (
        "too much",
        _rolling(maxUnavailable="120%"),
        f'{STRATEGY}.maxUnavailable: Invalid value: "120%": must not be greater than 100%',
    ),
    (
        "strategy",
        _spec(updateStrategy={"type": "Foo"}),
        (
            'spec.updateStrategy: Unsupported value: {"Type":"Foo","RollingUpdate":null}: '
            'supported values: "RollingUpdate", "OnDelete"'
        ),
    ),
    (
        "restartPolicy",
        _pod(restartPolicy="Never"),
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ),
    ("no containers", _pod(containers=[]), "spec.template.spec.containers: Required value"),
    (
        "no image",
        _pod(containers=[{"name": "c"}]),
        "spec.template.spec.containers[0].image: Required value",
    ),
    (
        "twice",
        _pod(containers=[{"name": "c", "image": "a"}, {"name": "c", "image": "a"}]),
        'spec.template.spec.containers[1].name: Duplicate value: "c"',
    ),
    (
        "no such volume",
        _pod(
            containers=[
                {"name": "c", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
            ]
        ),
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ),
    (
        "below zero",
        _spec(minReadySeconds=-1),
        "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "selector",
        _spec(selector={"matchLabels": {"app": "x"}}),
        (
            'spec.template.metadata.labels: Invalid value: {"app":"agent"}: `selector` does '
            "not match "
            "template `labels`"
        ),
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
async def test_a_daemonset_that_cannot_be_is_refused_with_its_field(
    stage: Stage, /, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    body = stage.daemonset()
    change(body)
    with pytest.raises(errors.Invalid) as caught:
        await stage.cluster.create(DAEMONSET, body)
    assert str(caught.value) == f'DaemonSet.apps "agent" is invalid: {message}'
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    (cause,) = caught.value.causes
    assert f"{cause['field']}: {cause['message']}" == message


async def test_names_and_labels_are_checked(stage: Stage, /) -> None:
    with pytest.raises(errors.Invalid, match="a lowercase RFC 1123 subdomain must consist of"):
        await stage.cluster.create(CONFIG_MAP, stage.config_map("B_x"))
    with pytest.raises(errors.Invalid, match="name or generateName is required"):
        await stage.cluster.create(CONFIG_MAP, stage.config_map(""))
    with pytest.raises(errors.Invalid, match="a valid label must be an empty string or consist of"):
        await stage.cluster.create(CONFIG_MAP, stage.config_map("c", labels={"a": "x y"}))


async def test_immutable_data_stays(stage: Stage, /) -> None:
    await stage.cluster.create(CONFIG_MAP, {**stage.config_map("c", {"a": "1"}), "immutable": True})
    for patch in ({"data": {"a": "2"}}, {"immutable": False}):
        with pytest.raises(errors.Invalid, match="field is immutable when `immutable` is set"):
            await stage.cluster.patch(CONFIG_MAP, stage.namespace, "c", patch)
    revision = {
        "metadata": {"name": "r", "namespace": stage.namespace},
        "revision": 1,
        "data": {"a": 1},
    }
    await stage.cluster.create(
        CONTROLLER_REVISION, {"apiVersion": "apps/v1", "kind": "ControllerRevision", **revision}
    )
    with pytest.raises(errors.Invalid, match=r'data: Invalid value: \{"a":2\}: field is immutable'):
        await stage.cluster.patch(CONTROLLER_REVISION, stage.namespace, "r", {"data": {"a": 2}})
    moved = await stage.cluster.patch(CONTROLLER_REVISION, stage.namespace, "r", {"revision": 3})
    assert moved["revision"] == 3


async def test_a_field_that_the_kind_does_not_have_is_dropped_from_a_plain_write(
    stage: Stage, /
) -> None:
    made = await stage.cluster.create(DAEMONSET, stage.daemonset(foo=1))
    assert "foo" not in made["spec"]


async def test_a_custom_kind_is_served_while_its_definition_exists(stage: Stage, /) -> None:
    definitions = (await stage.cluster.resources())[
        "apiextensions.k8s.io", "CustomResourceDefinition"
    ]
    gadget, crd = stage.gadgets()
    await stage.cluster.create(definitions, crd)
    body = {
        "apiVersion": gadget.api_version,
        "kind": "Gadget",
        "metadata": {"name": "g", "namespace": stage.namespace},
    }

    async def served() -> bool:
        try:
            await stage.cluster.apply(gadget, {**body, "spec": {"a": [1]}}, manager="one")
        except errors.NotFound:
            return False
        return True

    await eventually(served)
    changed = (
        await stage.cluster.apply(gadget, {**body, "spec": {"a": [1, 2]}}, manager="one")
    ).body
    assert (changed["metadata"]["generation"], changed["spec"]) == (2, {"a": [1, 2]})
    with pytest.raises(errors.BadRequest) as caught:
        await stage.cluster.patch(
            gadget, stage.namespace, "g", {"spec": {"a": [3]}}, type=PatchType.STRATEGIC
        )
    assert caught.value.status == 415
    await stage.cluster.delete(definitions, "", crd["metadata"]["name"])

    async def unserved() -> bool:
        try:
            await stage.cluster.list(gadget)
        except errors.NotFound:
            return True
        return False

    await eventually(unserved)
