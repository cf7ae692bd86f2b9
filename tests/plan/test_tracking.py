"""Deleted is what the inventory holds and no other object's mark: a copied label never deletes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body, CommitId, Key
from gitops_ds.core.sources.bundle import ManifestOrigin
from gitops_ds.core.values import replace
from gitops_ds.deploy import state_store
from gitops_ds.ownership import object_owner
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.permissions import Impersonation
from gitops_ds.testing import simulator
from tests.plan import world
from tests.plan.world import PRUNING, World, config_map, daemonset
from tests.staging.staged_objects import manifest

play = world.play

FILES = {"a.yaml": config_map("settings", a="1"), "b.yaml": config_map("words", b="1")}


def copied(body: Body, name: str, *, annotations: bool) -> dict[str, Any]:
    """As `kubectl get -o yaml | sed | kubectl apply`, or a controller that copies labels alone."""
    metadata = {"name": name, "namespace": "default", "labels": dict(body["metadata"]["labels"])}
    if annotations:
        metadata["annotations"] = dict(body["metadata"].get("annotations") or {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": copy.deepcopy(body["data"]),
    }


async def names_of(cluster: simulator.SimulatedCluster) -> set[str]:
    return {
        body["metadata"]["name"]
        for body in (await cluster.list(CONFIG_MAP)).items
        if body["metadata"]["namespace"] == "default"
    }


@pytest.mark.parametrize("annotations", [True, False])
@pytest.mark.parametrize("content_named", [True, False])
@pytest.mark.parametrize("lost", [True, False])
async def test_a_copy_of_an_object_is_never_deleted(
    deployer: World,
    cluster: simulator.SimulatedCluster,
    /,
    annotations: bool,
    content_named: bool,
    lost: bool,
) -> None:
    original = config_map("settings", a="1")
    if content_named:
        original["metadata"]["labels"] = {names.CONTENT_NAMED: "agent"}
    await deployer.apply({"a.yaml": original, "b.yaml": FILES["b.yaml"]})
    there = await cluster.get(CONFIG_MAP, "default", "settings")
    await cluster.client("replicator").create(
        CONFIG_MAP, copied(there, "copy", annotations=annotations)
    )
    if lost:
        await cluster.delete(
            CONFIG_MAP, deployer.state_namespace, state_store.config_map_name(deployer.owner)
        )
    for subject in ("second", "third"):
        done = await deployer.apply({"b.yaml": FILES["b.yaml"]}, subject, PRUNING)
        assert done.refusals == ()
    assert await names_of(cluster) == {"words", "copy"}, "the original is deleted, the copy stays"


async def test_two_labels_on_an_object_of_others_do_not_delete_it(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    people = cluster.client("tenant")
    await people.create(CONFIG_MAP, config_map("victim"))
    labels = {names.OWNER_LABEL: deployer.owner, names.CONTENT_NAMED: "agent"}
    marks = {
        names.TRACKING_ID: object_owner.mark(
            deployer.owner, Key("", "ConfigMap", "default", "victim")
        )
    }
    patch = {"metadata": {"labels": labels, "annotations": marks}}
    await people.patch(CONFIG_MAP, "default", "victim", patch, type=PatchType.MERGE)
    assert (await deployer.apply(FILES, "second", PRUNING)).refusals == ()
    assert "victim" in await names_of(cluster)


async def test_objects_from_before_the_mark_are_left_as_they_are_and_deleted_by_the_inventory(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await before_marks(cluster, deployer)
    assert (await deployer.apply(FILES, "second", PRUNING)).writes == 0, "an upgrade writes nothing"
    gone = await deployer.apply({"b.yaml": FILES["b.yaml"]}, "third", PRUNING)
    assert gone.written == ("delete ConfigMap default/settings",)
    changed = await deployer.apply({"b.yaml": config_map("words", b="2")}, "fourth", PRUNING)
    assert changed.writes == 1
    marked = await cluster.get(CONFIG_MAP, "default", "words")
    key = Key("", "ConfigMap", "default", "words")
    assert marked["metadata"]["annotations"][names.TRACKING_ID] == object_owner.mark("test", key)


async def before_marks(cluster: simulator.SimulatedCluster, deployer: World) -> None:
    """Applied by the version before: with our label and field manager, in the inventory, without a
    mark.
    """
    for body in FILES.values():
        labelled = {
            **body,
            "metadata": {**body["metadata"], "labels": {names.OWNER_LABEL: deployer.owner}},
        }
        await cluster.apply(CONFIG_MAP, labelled, manager=names.FIELD_MANAGER)
    draft = await deployer.draft(FILES)
    await deployer.carry_out(draft)


async def test_without_the_inventory_an_unmarked_object_is_kept_and_reported(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await before_marks(cluster, deployer)
    await cluster.delete(
        CONFIG_MAP, deployer.state_namespace, state_store.config_map_name(deployer.owner)
    )
    kept = await deployer.apply({"b.yaml": FILES["b.yaml"]}, "second", PRUNING)
    assert (kept.writes, kept.guards) == (0, ["not-in-inventory"])
    assert "ConfigMap default/settings" in kept.refusals[0].message


async def test_objects_that_a_guard_kept_are_in_the_rebuilt_inventory(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    await cluster.delete(
        CONFIG_MAP, deployer.state_namespace, state_store.config_map_name(deployer.owner)
    )
    assert (await deployer.apply({"b.yaml": FILES["b.yaml"]}, "second")).guards == ["prune-off"]
    done = await deployer.apply({"b.yaml": FILES["b.yaml"]}, "third", PRUNING)
    assert done.written == ("delete ConfigMap default/settings",)


async def test_an_object_that_took_the_place_of_a_deleted_one_with_the_mark_of_another_stays(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    words = await cluster.get(CONFIG_MAP, "default", "words")
    await cluster.delete(CONFIG_MAP, "default", "settings")
    await cluster.client("people").create(CONFIG_MAP, copied(words, "settings", annotations=True))
    assert (await deployer.apply({"b.yaml": FILES["b.yaml"]}, "second", PRUNING)).writes == 0
    assert "settings" in await names_of(cluster)


async def test_the_account_for_a_delete_follows_the_inventory_and_no_annotation(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    who = Impersonation(service_account="deployer", agents={"cni": "kube-system/cni-admin"})
    options = replace(world.pruning(share=1.0), impersonation=who)
    agents = {"agents/plain/agent.yaml": "", "agents/plain/daemonset.yaml": daemonset("plain")}
    await deployer.apply({**FILES, **agents}, options=options)
    patch = {"metadata": {"annotations": {names.PATH: "agents/cni/daemonset.yaml"}}}
    await cluster.client("people").patch(DAEMONSET, "default", "plain", patch, type=PatchType.MERGE)
    client: Any = deployer.cluster
    seen: list[str] = []

    def note(request: Any) -> errors.ClusterError | None:
        if request.verb == "delete":
            seen.append(request.user)
        return None

    client.faults = note
    await deployer.apply(FILES, "second", options)
    assert seen == ["system:serviceaccount:default:deployer"]


@pytest.mark.parametrize("kind", ["DaemonSet", "ConfigMap"])
def test_a_manifest_of_a_cluster_object_states_the_version_of_that_object(kind: str) -> None:
    source = ManifestOrigin(CommitId("c" * 40), "u1", "ConfigMap infra/source")
    one = replace(manifest("1", Key("", kind, "infra", "agent")), holder=source)
    stamp = Stamp("test", "https://git.example.com/fleet", "a" * 40, "Subject")
    body = object_owner.stamped(one, object_owner.stamp_of(one, stamp))
    annotations = body["metadata"]["annotations"]
    assert annotations[names.COMMIT] == source.commit
    assert annotations[names.CHANGE_CAUSE] == source.words
    assert annotations[names.TEMPLATE_UID] == source.uid
