"""Delete: preconditions, finalizers, what becomes of dependents and namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import Propagation, Selection
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NAMESPACE, Body
from tests.contract.scenes import Stage, eventually

pytestmark = pytest.mark.usefixtures("play")


async def _gone(stage: Stage, name: str) -> bool:
    try:
        await stage.cluster.get(CONFIG_MAP, stage.namespace, name)
    except errors.NotFound:
        return True
    return False


def _owned(stage: Stage, name: str, owner: Body, **more: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return stage.config_map(
        name, {}, ownerReferences=[{**reference, "blockOwnerDeletion": True}], **more
    )


async def test_a_delete_of_another_uid_is_a_conflict(stage: Stage, /) -> None:
    made = await stage.cluster.create(DAEMONSET, stage.daemonset())
    with pytest.raises(
        errors.Conflict,
        match=r"the UID in the precondition \(x\) does not match the UID in record",
    ):
        await stage.cluster.delete(DAEMONSET, stage.namespace, "agent", uid="x")
    await stage.cluster.delete(DAEMONSET, stage.namespace, "agent", uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await stage.cluster.delete(DAEMONSET, stage.namespace, "agent")


async def test_the_reply_is_a_status_when_the_object_is_gone_at_once(stage: Stage, /) -> None:
    made = await stage.cluster.create(CONFIG_MAP, stage.config_map("c", {}))
    reply = await stage.cluster.delete(CONFIG_MAP, stage.namespace, "c")
    assert (reply["kind"], reply["status"]) == ("Status", "Success")
    assert reply["details"] == {
        "name": "c",
        "kind": "configmaps",
        "uid": made["metadata"]["uid"],
    }


async def test_a_finalizer_keeps_the_object_until_it_is_taken_off(stage: Stage, /) -> None:
    await stage.cluster.create(DAEMONSET, {**stage.daemonset(), "metadata": {
        **stage.daemonset()["metadata"], "finalizers": ["example.com/wait"]}})  # fmt: skip
    ending = await stage.cluster.delete(DAEMONSET, stage.namespace, "agent")
    assert ending["metadata"]["deletionTimestamp"]
    assert ending["metadata"]["generation"] == 2
    again = await stage.cluster.delete(DAEMONSET, stage.namespace, "agent")
    assert again["metadata"]["resourceVersion"] == ending["metadata"]["resourceVersion"]
    await stage.cluster.patch(
        DAEMONSET, stage.namespace, "agent", {"metadata": {"finalizers": None}}
    )
    with pytest.raises(errors.NotFound):
        await stage.cluster.get(DAEMONSET, stage.namespace, "agent")


async def test_dependents_go_with_their_owner_in_the_background(stage: Stage, /) -> None:
    owner = await stage.cluster.create(CONFIG_MAP, stage.config_map("owner", {}))
    await stage.cluster.create(CONFIG_MAP, _owned(stage, "dependent", owner))
    await stage.cluster.delete(CONFIG_MAP, stage.namespace, "owner")
    await eventually(lambda: _gone(stage, "dependent"))


async def test_a_dependent_of_an_owner_that_never_was_is_collected(stage: Stage, /) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000001"}}
    await stage.cluster.create(CONFIG_MAP, _owned(stage, "dependent", ghost))
    await eventually(lambda: _gone(stage, "dependent"))


async def test_with_foreground_deletion_an_owner_is_deleted_after_its_dependents(
    stage: Stage, /
) -> None:
    owner = await stage.cluster.create(CONFIG_MAP, stage.config_map("owner", {}))
    await stage.cluster.create(
        CONFIG_MAP, _owned(stage, "dependent", owner, finalizers=["example.com/wait"])
    )
    reply = await stage.cluster.delete(
        CONFIG_MAP, stage.namespace, "owner", propagation=Propagation.FOREGROUND
    )
    assert reply["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def ending() -> bool:
        return (
            "deletionTimestamp"
            in (await stage.cluster.get(CONFIG_MAP, stage.namespace, "dependent"))["metadata"]
        )

    await eventually(ending)
    assert not await _gone(stage, "owner")
    await stage.cluster.patch(
        CONFIG_MAP, stage.namespace, "dependent", {"metadata": {"finalizers": None}}
    )
    await eventually(lambda: _gone(stage, "owner"))
    assert await _gone(stage, "dependent")


async def test_dependents_stay_when_they_are_orphaned(stage: Stage, /) -> None:
    owner = await stage.cluster.create(CONFIG_MAP, stage.config_map("owner", {}))
    await stage.cluster.create(CONFIG_MAP, _owned(stage, "dependent", owner))

    async def known() -> bool:
        return not await _gone(stage, "dependent")

    await eventually(known)
    reply = await stage.cluster.delete(
        CONFIG_MAP, stage.namespace, "owner", propagation=Propagation.ORPHAN
    )
    assert reply["metadata"]["finalizers"] == ["orphan"]
    await eventually(lambda: _gone(stage, "owner"))
    left = await stage.cluster.get(CONFIG_MAP, stage.namespace, "dependent")
    assert "ownerReferences" not in left["metadata"]


async def test_a_namespace_ends_with_all_that_is_in_it(stage: Stage, /) -> None:
    held = stage.config_map("held", {}, finalizers=["example.com/wait"])
    await stage.cluster.create(CONFIG_MAP, held)
    await stage.cluster.create(CONFIG_MAP, stage.config_map("free", {}))
    reply = await stage.cluster.delete(NAMESPACE, "", stage.namespace)
    assert (reply["kind"], reply["status"]["phase"]) == ("Namespace", "Terminating")
    with pytest.raises(errors.Forbidden, match="because it is being terminated") as caught:
        await stage.cluster.create(CONFIG_MAP, stage.config_map("late", {}))
    assert caught.value.causes[0]["reason"] == "NamespaceTerminating"
    await eventually(lambda: _gone(stage, "free"))
    await stage.cluster.patch(
        CONFIG_MAP, stage.namespace, "held", {"metadata": {"finalizers": None}}
    )

    async def ended() -> bool:
        listing = await stage.cluster.list(
            NAMESPACE, Selection(fields=f"metadata.name={stage.namespace}")
        )
        return not listing.items

    await eventually(ended)


async def test_the_first_namespaces_stay(stage: Stage, /) -> None:
    with pytest.raises(errors.Forbidden, match="this namespace may not be deleted"):
        await stage.cluster.delete(NAMESPACE, "", "default")
