"""Objects of kinds that only the cluster knows get the default namespace where they need one."""

from __future__ import annotations

import pytest

from gitops_ds import simulator
from gitops_ds.apimachinery.builtin_resources import RESOURCES
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.yaml import parser
from tests.plan.world import World

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
