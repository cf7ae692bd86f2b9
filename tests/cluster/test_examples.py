"""The example repository on a real API server, for each of its clusters: applied whole; a second
reconciliation neither dry-runs nor writes.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.values import replace
from gitops_ds.deploy.apply import plan_draft, plan_execution
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.plan import planner
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.staging import staging
from tests.cluster.conftest import Counting, Play
from tests.render.test_examples import CLUSTERS, snapshot

COMMIT = CommitInfo(
    CommitId("1" * 40), (), datetime(2026, 1, 1, tzinfo=UTC), "Ada <ada@example.com>", "Examples"
)

pytestmark = pytest.mark.controlplane


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_examples_are_applied_whole_and_once(name: str, on_api_server: Play) -> None:
    bundle = prepare.prepare(snapshot(), cluster=name).bundle
    # No kubelet makes an agent ready here, and each must be written.
    everything = {
        key: replace(manifest, depends_on=()) for key, manifest in bundle.manifests.items()
    }
    bundle = replace(bundle, held={}, manifests=everything)
    options = ApplyOptions(adopt=True, patience=0)

    async def scene(cluster: Counting, namespace: str) -> None:
        place = DeployTarget(
            cluster, "gitops-ds", f"examples.{name}", "https://git.example.com/examples.git"
        )
        first = await plan_draft.draft(place, bundle, COMMIT, options)
        try:
            done = await plan_execution.carry_out(
                place, first, options, lambda _: None, lambda: 0.0
            )
            assert (done.ended.refusals, done.ended.writes) == ((), len(bundle.manifests))
            assert cluster.writes >= len(bundle.manifests)
            cluster.sent.clear()
            again = await plan_draft.draft(place, bundle, COMMIT, options)
            live, context = again.inputs.live, again.inputs.context
            written = staging.staged(again.bundle, live, context).bundle
            assert planner.undecided(written, live, context) == ()
            assert cluster.sent.total() == 0
        finally:
            for change in reversed(first.plan.changes):
                if change.key.kind != "Namespace":
                    with contextlib.suppress(errors.NotFound):
                        await cluster.delete(
                            first.inputs.resources[change.key],
                            change.key.namespace,
                            change.key.name,
                        )

    on_api_server(scene)
