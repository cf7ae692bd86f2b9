"""Live objects of a plan: the default namespace of kinds that only the cluster knows, and the
objects of a missing namespace.
"""

from __future__ import annotations

import pytest

from gitops_ds.core.objects import CONFIG_MAP, NAMESPACE, Key
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.deploy import live_state
from gitops_ds.kube.apimachinery.builtin_resources import RESOURCES
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator.faults import SimulatedRequest
from gitops_ds.yaml import parser
from tests.plan.world import World, config_map

DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: probes.example.com}}
spec:
  group: example.com
  scope: {scope}
  names: {{kind: Probe, plural: probes, singular: probe}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object}}}}}}}}
"""
PROBE = "apiVersion: example.com/v1\nkind: Probe\nmetadata: {name: one}\nspec: {every: 5s}\n"


@pytest.mark.parametrize(("scope", "namespace"), [("Namespaced", "default"), ("Cluster", "")])
async def test_a_custom_object_has_the_scope_of_its_kind(scope: str, namespace: str) -> None:
    files = {"a.yaml": DEFINITION.format(scope=scope), "b.yaml": PROBE}
    async with simulator.SimulatedCluster() as cluster:
        world = World(cluster.client(), namespace="default")
        for writes in (2, 0):
            done = await world.apply(files)
            keys = [change.key for change in done.plan.changes]
            assert [key.namespace for key in keys if key.kind == "Probe"] == [namespace]
            assert (done.writes, done.refusals) == (writes, ())


async def test_an_object_with_the_default_namespace_is_not_replaced_silently_by_one_without() -> (
    None
):
    """The kind is known to the cluster only, so that the two have different keys in Git."""
    named = PROBE.replace("name: one", "name: one, namespace: default").replace("5s", "9s")
    definition = parser.read("crd.yaml", DEFINITION.format(scope="Namespaced").encode())
    async with simulator.SimulatedCluster() as cluster:
        kind = RESOURCES["apiextensions.k8s.io", "CustomResourceDefinition"]
        await cluster.create(kind, definition.documents[0].value)
        plan = (await World(cluster.client()).draft({"a.yaml": PROBE, "b.yaml": named})).plan
    [change] = plan.changes
    assert change.manifest is not None
    assert change.manifest.body["spec"] == {"every": "9s"}
    [refusal] = plan.refusals
    assert (refusal.reason, refusal.key) == (SkipReason.NAMED_TWICE, change.key)
    assert "without a namespace in a.yaml" in refusal.message


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
