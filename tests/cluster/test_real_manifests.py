"""Manifests of known projects, read beside the project where they are present, each applied to a
real API server and once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import NAMESPACE, Resource
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.plan import planner
from gitops_ds.ownership.options import ApplyOptions
from tests.cluster.conftest import Counting, Play
from tests.plan import world

FOLDER = Path(__file__).parents[2].parent / "shared/real-manifests"
FILES = sorted(p.name for p in FOLDER.glob("*.*") if p.suffix in (".yaml", ".yml", ".json"))

pytestmark = pytest.mark.controlplane


# Not visible in a file alone: an admission check that reads the namespace.
REFUSED_FOR_THE_CLUSTER = "label on the containing namespace"
# Kinds whose defaults are not in our table: a dry run shows that nothing would change.
DRY_RUN_KINDS = {
    "ValidatingAdmissionPolicy",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
}


@pytest.mark.parametrize("name", FILES)
def test_a_real_manifest_is_applied_whole_and_a_second_reconciliation_neither_writes_nor_dry_runs(
    name: str, on_api_server: Play
) -> None:
    files = {name: (FOLDER / name).read_bytes()}

    async def scene(cluster: Counting, namespace: str) -> None:
        prepared = prepare.prepare(world.snapshot(files), namespace=namespace)
        if not prepared.deployable:
            return
        spaces = {key.namespace for key in prepared.bundle.manifests} - {""}
        for space in sorted(spaces):
            await cluster.apply(
                NAMESPACE,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}},
                manager="test",
            )
        deployer = world.World(cluster, owner=f"owner-of-{namespace}", namespace=namespace)
        # Namespaces outlive a test here (nothing on this cluster finishes their end), so they are
        # taken over.
        taking = ApplyOptions(adopt=True, patience=0)
        first = await deployer.apply(files, options=taking)
        try:
            assert [
                r
                for r in first.refusals
                if r.reason != SkipReason.UNKNOWN_KIND and REFUSED_FOR_THE_CLUSTER not in r.message
            ] == []
            cluster.sent.clear()
            again = await deployer.draft(files, options=taking)
            dry_run_kinds = {
                m.key.kind
                for m in planner.undecided(again.bundle, again.inputs.live, again.inputs.context)
            }
            assert dry_run_kinds <= DRY_RUN_KINDS
            if not first.refusals:
                assert (await deployer.carry_out(again)).written == ()
                assert cluster.writes == 0
        finally:
            await _take_away(cluster, first)

    on_api_server(scene)


async def _take_away(cluster: Counting, done: world.Pass) -> None:
    served = await cluster.resources()
    for change in reversed(done.plan.changes):
        key = change.key
        if key.kind != "Namespace" and (resource := served.get((key.group, key.kind))):
            with contextlib.suppress(errors.NotFound):
                await cluster.delete(resource, key.namespace, key.name)
                # the next project may bring the same one
                if key.kind == "CustomResourceDefinition":
                    async with asyncio.timeout(120):
                        await _gone(cluster, resource, key.name)


async def _gone(cluster: Counting, definition: Resource, name: str) -> None:
    """Raises NotFound when it is. The API server retries the end of a definition with increasing
    delay, unless the definition changes.
    """
    for time in itertools.count():
        await cluster.patch(
            definition, "", name, {"metadata": {"annotations": {"looked-at": str(time)}}}
        )
        await asyncio.sleep(0.25)
