"""A Namespace or CustomResourceDefinition that left Git: all objects inside count, of any owner."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NAMESPACE, Key
from gitops_ds.deploy import deletion_contents
from gitops_ds.ownership.options import ApplyOptions, Limit
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator.faults import SimulatedRequest, failure
from tests.plan import world
from tests.plan.world import KEPT, World, config_map, daemonset, namespace, pruning

play = world.play

SPACE = Key("", "Namespace", "", "tools")
PROBE = {
    "apiVersion": "example.com/v1",
    "kind": "Probe",
    "metadata": {"name": "one-probe", "namespace": "default"},
    "spec": {"path": "/"},
}
_SCHEMA = {
    "openAPIV3Schema": {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"path": {"type": "string"}}}},
    }
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "probes.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "kind": "Probe",
            "listKind": "ProbeList",
            "plural": "probes",
            "singular": "probe",
        },
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": _SCHEMA}],
    },
}


def options(approved: str = "", **guards: Any) -> ApplyOptions:
    return pruning(approved, **{"deletes": Limit(), **guards})


WITH_SPACE = {**KEPT, "namespace.yaml": namespace("tools")}


async def spaces(cluster: simulator.SimulatedCluster) -> set[str]:
    items = (await cluster.list(NAMESPACE)).items
    return {
        body["metadata"]["name"] for body in items if "deletionTimestamp" not in body["metadata"]
    } & {"tools"}


async def test_a_namespace_with_an_agent_that_is_still_in_git_is_kept_even_if_the_plan_is_approved(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    agent = {"agent.yaml": daemonset("inside", namespace="tools")}
    await deployer.apply({**WITH_SPACE, **agent})
    kept = await deployer.apply({**KEPT, **agent}, "second", options(share=1.0))
    assert (kept.guards, kept.writes) == (["in-use"], 0)
    assert "DaemonSet tools/inside" in kept.refusals[0].message
    again = await deployer.apply({**KEPT, **agent}, "second", options(kept.plan.hash, share=1.0))
    assert (again.guards, await spaces(cluster)) == (["in-use"], {"tools"})


async def test_a_namespace_with_only_pruned_objects_counts_its_agents_and_is_deleted_last(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    agent = {
        "agent.yaml": daemonset("inside", namespace="tools"),
        "words.yaml": config_map("words", "tools"),
    }
    await deployer.apply({**WITH_SPACE, **agent})
    refused = await deployer.apply(KEPT, "second", options())
    assert (refused.guards, refused.writes) == (["share-of-nodes"], 0)
    assert {str(change.key) for change in refused.plan.held} == {
        "Namespace tools",
        "DaemonSet tools/inside",
        "ConfigMap tools/words",
    }
    done = await deployer.apply(KEPT, "second", options(refused.plan.hash))
    assert done.written[-1] == "delete Namespace tools"
    assert await spaces(cluster) == set()


async def test_objects_of_others_in_a_namespace_are_named_and_their_agents_are_counted(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(WITH_SPACE)
    people = cluster.client("people")
    await people.create(DAEMONSET, daemonset("theirs", namespace="tools"))
    await people.create(CONFIG_MAP, config_map("notes", "tools"))
    kept = await deployer.apply(KEPT, "second", options())
    assert (kept.guards, kept.writes) == (["not-empty"], 0)
    assert "DaemonSet tools/theirs" in kept.refusals[0].message
    assert "ConfigMap tools/notes" in kept.refusals[0].message
    [held] = kept.plan.held
    assert held.nodes.lost == ("node-0", "node-1", "node-2")
    await people.create(CONFIG_MAP, config_map("more", "tools"))
    assert (await deployer.apply(KEPT, "second", options(kept.plan.hash))).guards == [
        "not-empty"
    ], "more than was approved"
    approved = (await deployer.draft(KEPT, "second", options())).plan.hash
    assert (await deployer.apply(KEPT, "second", options(approved))).written == (
        "delete Namespace tools",
    )


@pytest.mark.parametrize(
    ("policy", "guards"),
    [("disabled", ["not-empty", "prune-disabled"]), ("orphan", ["share-of-nodes"])],
)
async def test_a_namespace_keeps_a_kept_agent_and_takes_orphaned_pods_along(
    deployer: World, cluster: simulator.SimulatedCluster, /, policy: str, guards: list[str]
) -> None:
    agent = daemonset("inside", namespace="tools")
    agent["metadata"]["annotations"] = {"gitops-ds.io/prune": policy}
    await deployer.apply({**WITH_SPACE, "agent.yaml": agent})
    kept = await deployer.apply(KEPT, "second", options())
    assert sorted(kept.guards) == guards
    assert await spaces(cluster) == {"tools"}


async def test_a_kind_that_may_not_be_listed_keeps_the_namespace_until_the_plan_is_approved(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(WITH_SPACE)
    client: Any = deployer.cluster

    def blind(request: SimulatedRequest) -> errors.ClusterError | None:
        secrets = request.resource is not None and request.resource.plural == "secrets"
        return failure(403) if request.verb == "list" and secrets else None

    client.faults = blind
    kept = await deployer.apply(KEPT, "second", options())
    assert kept.guards == ["not-empty"]
    assert "secrets" in kept.refusals[0].message
    assert (await deployer.apply(KEPT, "second", options(kept.plan.hash))).written == (
        "delete Namespace tools",
    )


async def test_objects_inside_count_as_deletes(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    inside = {f"{n}.yaml": config_map(f"words-{n}", "tools") for n in range(3)}
    await deployer.apply({**WITH_SPACE, **inside})
    refused = await deployer.apply(
        {**KEPT, **inside, "namespace.yaml": ""}, "second", options(deletes=Limit(number=3))
    )
    assert refused.guards == ["in-use"]
    assert (await deployer.apply(KEPT, "third", options(deletes=Limit(number=3)))).guards == [
        "too-many-deletes"
    ]
    assert (await deployer.apply(KEPT, "third", options(deletes=Limit(number=4)))).writes == 4


@pytest.mark.parametrize("still_in_git", [True, False])
async def test_a_definition_is_kept_while_its_objects_are_in_git_or_of_others(
    deployer: World, cluster: simulator.SimulatedCluster, /, still_in_git: bool
) -> None:
    await deployer.apply({**KEPT, "definition.yaml": DEFINITION})
    ours = {"probe.yaml": PROBE} if still_in_git else {}
    if still_in_git:
        await deployer.apply({**KEPT, "definition.yaml": DEFINITION, **ours})
    else:
        kinds = await cluster.resources(refresh=True)
        kind = next(one for (_, name), one in kinds.items() if name == PROBE["kind"])
        await cluster.client("people").create(kind, PROBE)
    kept = await deployer.apply({**KEPT, **ours}, "third", options())
    assert kept.guards == ["in-use" if still_in_git else "not-empty"]
    assert "one-probe" in kept.refusals[0].message
    if not still_in_git:
        assert (await deployer.apply(KEPT, "third", options(kept.plan.hash))).writes == 1


async def test_nothing_is_listed_while_no_namespace_leaves_and_a_full_one_is_listed_once_a_minute(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(WITH_SPACE)
    await cluster.client("people").create(CONFIG_MAP, config_map("notes", "tools"))
    client: Any = deployer.cluster
    now = [0.0]
    memory = deletion_contents.ContentsCache(lambda: now[0])
    seen = (await deployer.draft(KEPT, "second", options())).inputs.live
    counts = []
    for moment in (0.0, 30.0, 61.0):
        now[0] = moment
        client.count.reset()
        body = await memory.read(client, seen, [SPACE])
        assert [str(key) for key in body.contents[SPACE].objects] == ["ConfigMap tools/notes"]
        counts.append(client.count.of("list"))
    assert counts[0] == counts[2] > 10
    assert counts[1] == 0
    client.count.reset()
    await memory.read(client, seen, [])
    assert client.count.total == 0
