"""The requests that read the objects of a first apply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from gitops_ds import simulator
from gitops_ds.deployer import live_state
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import CONFIG_MAP, NAMESPACE, Body, Key, Resource


@dataclass
class Recording:
    """A cluster that records the objects of single reads."""

    cluster: Any
    reads: list[str] = field(default_factory=list)

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        self.reads.append(f"{resource.kind} {namespace}/{name}")
        return cast("Body", await self.cluster.get(resource, namespace, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


async def test_objects_of_a_namespace_that_does_not_exist_are_not_requested() -> None:
    resources = {
        Key("", "Namespace", "", "absent"): NAMESPACE,
        Key("", "ConfigMap", "absent", "one"): CONFIG_MAP,
        Key("", "Namespace", "", "default"): NAMESPACE,
        Key("", "ConfigMap", "default", "two"): CONFIG_MAP,
        Key("", "ConfigMap", "other", "three"): CONFIG_MAP,
    }
    async with simulator.SimulatedCluster() as cluster:
        body = {"apiVersion": "v1", "kind": "ConfigMap"}
        client = cluster.client()
        await client.create(
            CONFIG_MAP, {**body, "metadata": {"name": "two", "namespace": "default"}}
        )
        recording = Recording(client)
        live = await live_state.read(cast("Cluster", recording), resources, "owner")
        assert sorted(map(str, live.objects)) == [
            "ConfigMap default/two",
            "Namespace default",
        ]
        assert recording.reads == [
            "Namespace /absent",
            "Namespace /default",
            "ConfigMap default/two",
            "ConfigMap other/three",
        ]
