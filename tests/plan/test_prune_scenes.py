"""Deleting: what guards against too much, what an approval is worth, and how many nodes are emptied
at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import DAEMONSET, POD, Key
from gitops_ds.kube.apimachinery import request_costs
from gitops_ds.ownership.options import Limit, Policy
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from tests.plan import world
from tests.plan.world import KEPT, World, config_map, daemonset, pruning

play = world.play

AGENTS = ("one", "two", "three")
FILES = {**KEPT, **{f"{name}.yaml": daemonset(name) for name in AGENTS}}


async def there(cluster: simulator.SimulatedCluster) -> list[str]:
    items = (await cluster.list(DAEMONSET)).items
    return sorted(
        body["metadata"]["name"] for body in items if "deletionTimestamp" not in body["metadata"]
    )


@pytest.mark.parametrize(
    ("limit", "guards"),
    [
        (Limit(number=2), ["too-many-deletes"]),
        (Limit(number=3), []),
        (Limit(0.5), ["too-many-deletes"]),
        (Limit(0.75), []),
    ],
)
async def test_no_more_objects_than_a_number_or_a_share_go_at_once(
    deployer: World, cluster: simulator.SimulatedCluster, /, limit: Limit, guards: list[str]
) -> None:
    files = {**KEPT, **{f"{name}.yaml": config_map(name) for name in AGENTS}}
    await deployer.apply(files)
    done = await deployer.apply(KEPT, "second", pruning(deletes=limit))
    assert (done.guards, done.writes) == (guards, 0 if guards else 3)


@pytest.mark.parametrize(
    ("limit", "number", "text"),
    [
        (Limit(), 8, "100%"),
        (Limit(0.25), 2, "25%"),
        (Limit(0.25, 3), 3, "3"),
        (Limit(1.0, 0), 0, "0"),
    ],
)
def test_a_limit_is_a_number_or_else_a_share_of_all(limit: Limit, number: int, text: str) -> None:
    assert (limit.of(8), str(limit)) == (number, text)


async def test_the_guard_for_empty_commits_may_be_switched_off_or_passed_by_approval(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(KEPT)
    kept = await deployer.apply({"README.md": ""}, "second", pruning())
    assert kept.guards == ["empty-render"]
    assert kept.plan.hash in kept.refusals[0].message
    assert (
        await deployer.apply({"README.md": ""}, "second", pruning(approved=kept.plan.hash))
    ).writes == 1
    await deployer.apply(KEPT, "third")
    assert (await deployer.apply({"README.md": ""}, "fourth", pruning(empty=False))).writes == 1


async def test_an_approval_holds_for_the_outcome_after_any_partial_write_and_for_no_other(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    rest = {**KEPT, "one.yaml": daemonset("one", "changed:1"), "two.yaml": FILES["two.yaml"]}
    refused = await deployer.apply(rest, "second", pruning())
    assert (refused.guards, refused.writes) == (["share-of-nodes"], 1)
    hash = refused.plan.hash
    assert hash in refused.refusals[0].message
    less = {name: body for name, body in rest.items() if name != "two.yaml"}
    assert (await deployer.apply(less, "third", pruning(hash))).guards == ["share-of-nodes"]
    other = {**rest, "one.yaml": daemonset("one", "changed:2")}
    assert (await deployer.apply(other, "fourth", pruning(hash))).guards == ["share-of-nodes"]
    done = await deployer.apply(rest, "another commit of the same files", pruning(hash))
    assert "delete DaemonSet default/three" in done.written
    assert done.state.approved == frozenset()


async def test_several_agents_are_pruned_one_after_the_other(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    for name in AGENTS:
        await pod_of(cluster, name)
    hash = (await deployer.draft(KEPT, "second", pruning())).plan.hash
    seen = []
    for _ in range(12):
        done = await deployer.apply(KEPT, "second", pruning(hash))
        pods = sorted(pod["metadata"]["labels"]["app"] for pod in (await cluster.list(POD)).items)
        seen.append((tuple(await there(cluster)), tuple(pods)))
        # No more than the pods of one at once: whose DaemonSet is gone, and whose pods are not.
        assert len({*pods} - {*seen[-1][0]}) <= 1
        assert set(done.guards) <= {"waits"}
        hash = ""  # the approval was given once
        # pods still end
        assert set((await deployer.apply(KEPT, "second", pruning())).guards) <= {"waits"}
        await finish(cluster)
    assert seen[-1] == ((), ())
    assert [len(names) for names, _ in seen] != [0] * len(seen)
    assert (await deployer.state()).approved == frozenset()


async def pod_of(cluster: simulator.SimulatedCluster, name: str) -> None:
    owner = await cluster.get(DAEMONSET, "default", name)
    reference = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": owner["metadata"]["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    metadata = {
        "name": f"{name}-0",
        "namespace": "default",
        "labels": {"app": name},
        "ownerReferences": [reference],
    }
    spec = {"nodeName": "node-0", "containers": [{"name": "agent", "image": "agent:1"}]}
    await cluster.create(
        POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )


async def finish(cluster: simulator.SimulatedCluster) -> None:
    """Time for the kubelets to end what is to end, and for the collector to take what is left."""
    await asyncio.sleep(60)


async def test_an_approved_deletion_continues_after_a_kill_and_no_other_does(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    hash = (await deployer.draft(KEPT, "second", pruning())).plan.hash
    client = cluster.client()

    def dies(request: SimulatedRequest) -> RequestFault | None:
        deleting = request.verb == "delete" and request.resource == DAEMONSET
        return errors.ClusterUnreachable("the process is gone") if deleting else None

    client.faults = dies
    with pytest.raises(errors.ClusterUnreachable):
        await World(client).apply(KEPT, "second", pruning(hash))
    assert await there(cluster) == sorted(AGENTS)
    for _ in range(6):
        await deployer.apply(KEPT, "second", pruning())
        await finish(cluster)
    assert await there(cluster) == []

    # The same object again in Git and out of it: that needs a new approval.
    await deployer.apply(FILES, "third")
    assert (await deployer.apply(KEPT, "fourth", pruning())).guards == [
        "too-many-deletes",
        "share-of-nodes",
    ]


async def test_an_agent_that_returns_during_its_deletion_is_created_again_afterwards(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    for name in AGENTS:
        await pod_of(cluster, name)
    await deployer.apply(
        KEPT,
        "second",
        pruning(
            share=0.0,
            nodes=0,
            approved=(await deployer.draft(KEPT, "second", pruning())).plan.hash,
        ),
    )
    done = await deployer.apply(FILES, "third")
    assert "waits" in done.guards or await there(cluster) == sorted(AGENTS)
    await finish(cluster)
    assert (await deployer.apply(FILES, "third")).guards == []
    assert await there(cluster) == sorted(AGENTS)


POLICIES = [
    ({}, Policy.CASCADE, "Background"),
    ({}, Policy.ORPHAN, "Orphan"),
    ({}, Policy.FOREGROUND, "Foreground"),
    ({names.PRUNE: "orphan"}, Policy.CASCADE, "Orphan"),
    ({names.PRUNE: "foreground"}, Policy.ORPHAN, "Foreground"),
    ({names.PRUNE: "cascade"}, Policy.ORPHAN, "Background"),
]


@pytest.mark.parametrize(("annotations", "setting", "propagation"), POLICIES)
async def test_the_object_or_else_the_setting_decides_whether_pods_are_deleted(
    deployer: World,
    cluster: simulator.SimulatedCluster,
    /,
    annotations: dict[str, str],
    setting: Policy,
    propagation: str,
) -> None:
    body = daemonset("one")
    body["metadata"]["annotations"] = annotations
    await deployer.apply({**KEPT, "one.yaml": body})
    await pod_of(cluster, "one")
    assert (await deployer.apply(KEPT, "second", pruning(share=1.0, policy=setting))).writes == 1
    left = (await cluster.list(DAEMONSET)).items
    assert [bool(one["metadata"].get("deletionTimestamp")) for one in left] == (
        [True] if propagation == "Foreground" else []
    )
    await finish(cluster)
    pods = (await cluster.list(POD)).items
    assert len(pods) == (1 if propagation == "Orphan" else 0)
    assert not (await cluster.list(DAEMONSET)).items


async def test_an_unknown_value_protects(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    for name in AGENTS:
        patch = {"metadata": {"annotations": {names.PRUNE: "perhaps"}}}
        await cluster.patch(DAEMONSET, "default", name, patch, type=PatchType.MERGE)
    assert set((await deployer.apply(KEPT, "second", pruning(share=1.0))).guards) == {
        "prune-disabled"
    }
    assert Key("apps", "DaemonSet", "default", "one") in (await deployer.state()).inventory


@pytest.mark.parametrize(
    ("moved_to", "settings", "guards", "writes"),
    [
        ("agents/one.yaml", "version: v1\n", [], 0),
        ("shared/one.yaml", "version: v1\n", ["unread"], 0),
        ("shared/one.yaml", "version: v1\nmanifests: []\n", ["unread"], 0),
        ("shared/one.yaml", "version: v1\nignore: ['shared/**']\n", [], 1),
        ("shared/one.yaml", "version: v1\nmanifests: ['shared/**']\n", [], 0),
    ],
)
async def test_a_manifest_that_moves_inside_the_repository_is_not_a_deletion(
    deployer: World,
    cluster: simulator.SimulatedCluster,
    /,
    moved_to: str,
    settings: str,
    guards: list[str],
    writes: int,
) -> None:
    agents = {f"agents/{name}/ds.yaml": daemonset(name) for name in ("two", "three")}
    kept = {"gitops-ds.yaml": settings, "agents/kept/a.yaml": config_map("kept"), **agents}
    await deployer.apply({**kept, "agents/one/ds.yaml": daemonset("one")})
    done = await deployer.apply(
        {**kept, moved_to: daemonset("one")}, "second", pruning(deletes=Limit(number=9), share=1.0)
    )
    assert [skip.reason.value for skip in done.refusals] == guards
    assert len([skip for skip in done.refusals if moved_to in skip.message]) == len(guards)
    assert ("one" in await there(cluster)) is not bool(writes)


@pytest.mark.parametrize(
    ("file", "is_kept"),
    [
        ({"apiVersion": "v1", "kind": "List", "items": [daemonset("one")]}, True),
        ({"apiVersion": "v1", "kind": "List", "items": [daemonset("two")], "x": "one"}, False),
        ({**daemonset("one"), "items": "none"}, True),
        ("one\n---\n[one]\n", False),
    ],
)
async def test_an_unread_file_keeps_the_objects_whose_manifests_it_has(
    deployer: World, cluster: simulator.SimulatedCluster, /, file: Any, is_kept: bool
) -> None:
    kept = {"gitops-ds.yaml": "version: v1\n", "agents/two/ds.yaml": daemonset("two")}
    await deployer.apply({**kept, "agents/one/ds.yaml": daemonset("one")})
    files = {**kept, "shared/one.yaml": file}
    done = await deployer.apply(files, "second", pruning(deletes=Limit(number=9), share=1.0))
    assert done.guards == (["unread"] if is_kept else [])
    assert ("one" in await there(cluster)) is is_kept


@pytest.mark.parametrize(("policy", "text"), [("", "-0.3 cores"), ("orphan", "")])
async def test_a_deletion_frees_the_requests_of_the_pods_that_it_ends(
    deployer: World, cluster: simulator.SimulatedCluster, /, policy: str, text: str
) -> None:
    requests = {"resources": {"requests": {"cpu": "100m"}}}
    body = daemonset("one", containers=[{"name": "agent", "image": "agent:1", **requests}])
    if policy:
        body["metadata"]["annotations"] = {names.PRUNE: policy}
    await deployer.apply({**KEPT, "one.yaml": body, "two.yaml": config_map("two")})
    plan = (await deployer.draft(KEPT, "second", pruning(share=1.0, deletes=Limit(1.0)))).plan
    costs = {change.key.name: change.costs for change in plan.writes}
    assert set(costs) == {"one", "two"}
    assert costs["two"] == ()
    assert (request_costs.line(costs["one"]) if costs["one"] else "") == (
        f"requests {text} over all its nodes" if text else ""
    )
