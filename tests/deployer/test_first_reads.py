"""The requests that read the objects of a first apply."""

from __future__ import annotations

from gitops_ds import simulator
from gitops_ds.deployer import live_state
from gitops_ds.model.objects import CONFIG_MAP, NAMESPACE, Key
from gitops_ds.simulator.faults import SimulatedRequest
from tests.plan.world import config_map


async def test_objects_of_a_namespace_that_does_not_exist_are_not_requested() -> None:
    reads: list[str] = []

    def recorded(request: SimulatedRequest) -> None:
        if request.verb == "get" and request.resource is not None:
            reads.append(f"{request.resource.kind} {request.namespace}/{request.name}")

    resources = {
        Key("", "Namespace", "", "absent"): NAMESPACE,
        Key("", "ConfigMap", "absent", "one"): CONFIG_MAP,
        Key("", "Namespace", "", "default"): NAMESPACE,
        Key("", "ConfigMap", "default", "two"): CONFIG_MAP,
        Key("", "ConfigMap", "other", "three"): CONFIG_MAP,
    }
    async with simulator.SimulatedCluster() as cluster:
        client = cluster.client(faults=recorded)
        await client.create(CONFIG_MAP, config_map("two"))
        live = await live_state.read(client, resources, "owner")
    assert sorted(map(str, live.objects)) == ["ConfigMap default/two", "Namespace default"]
    assert reads == [
        "Namespace /absent",
        "Namespace /default",
        "ConfigMap default/two",
        "ConfigMap other/three",
    ]
