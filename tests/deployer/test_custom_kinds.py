"""Objects of kinds that only the cluster knows get the default namespace where they need one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest

from gitops_ds import simulator
from gitops_ds.apimachinery.builtin_resources import RESOURCES
from gitops_ds.deployer.apply import plan_execution, prepared_plan
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.model.objects import CommitId
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.pipeline import prepare
from gitops_ds.plan.options import ApplyOptions
from gitops_ds.simulator import virtual_time
from gitops_ds.yaml import parser

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
    info = CommitInfo(
        CommitId("a" * 40), (), datetime(2026, 1, 1, tzinfo=UTC), "Ann <ann@example.com>", "one"
    )
    files = {
        PurePosixPath("a.yaml"): DEFINITION.format(scope=scope).encode(),
        PurePosixPath("b.yaml"): PROBE.encode(),
    }
    bundle = prepare.prepare(SourceTree(info, files), namespace="default").bundle
    async with simulator.SimulatedCluster() as cluster:
        place = DeployTarget(cluster.client(), "gitops-ds", "test", "memory")
        for writes in (2, 0):
            draft = await prepared_plan.draft(place, bundle, info, ApplyOptions())
            assert [
                change.key.namespace for change in draft.plan.changes if change.key.kind == "Probe"
            ] == [namespace]
            done = await plan_execution.carry_out(
                place, draft, ApplyOptions(), lambda _: None, cluster.server.now
            )
            assert [refusal.message for refusal in done.ended.refusals] == []
            assert done.ended.writes == writes


def test_an_object_with_the_default_namespace_is_not_replaced_silently_by_one_without() -> None:
    """The kind is known to the cluster only, so that the two have different keys in Git."""
    info = CommitInfo(CommitId("a" * 40), (), datetime(2026, 1, 1, tzinfo=UTC), "Ann", "one")
    named = PROBE.replace("name: one", "name: one, namespace: default").replace("5s", "9s")
    files = {PurePosixPath("a.yaml"): PROBE.encode(), PurePosixPath("b.yaml"): named.encode()}
    bundle = prepare.prepare(SourceTree(info, files)).bundle
    definition = parser.read("crd.yaml", DEFINITION.format(scope="Namespaced").encode())

    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            kind = RESOURCES["apiextensions.k8s.io", "CustomResourceDefinition"]
            await cluster.create(kind, definition.documents[0].value)
            place = DeployTarget(cluster.client(), "gitops-ds", "test", "memory")
            draft = await prepared_plan.draft(place, bundle, info, ApplyOptions())
            [change] = draft.plan.changes
            assert change.manifest is not None
            assert change.manifest.body["spec"] == {"every": "9s"}
            [refusal] = draft.plan.refusals
            assert (refusal.reason, refusal.key) == (SkipReason.NAMED_TWICE, change.key)
            assert "without a namespace in a.yaml" in refusal.message

    virtual_time.run(main())
