"""`gitops-ds approve ds/NAME STAGE` writes the approval to the target revision that is under
way.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gitops_ds.cli.approve import rollout_approvals
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.state import keys, rollout_annotations, target_revisions
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.simulator.setup import daemonset

POLICY: dict[str, Any] = {
    "stages": ["canary", {"name": "gpu", "approval": {"from": ["team-gpu"]}}, "rest"]
}


def play(
    scene: Callable[[Cluster, str], Awaitable[None]], policy: dict[str, Any] | None = POLICY
) -> None:
    """A cluster with a DaemonSet, and the target revision of a commit for it, whose name is
    given.
    """

    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            client = cluster.client("kubectl")
            body = copy.deepcopy(daemonset())
            if policy is not None:
                text = target_revisions.policy_text(policy, ())
                body["metadata"].setdefault("annotations", {})[keys.ROLLOUT_POLICY] = text
            made = daemonsets.daemonset_of(await client.create(DAEMONSET, body))
            template = copy.deepcopy(dict(made.template))
            template["spec"]["containers"][0]["image"] = "agent:2"
            target = target_revisions.body_of(made, template, "c" * 40)
            name = str(target["metadata"]["name"])
            await client.create(CONTROLLER_REVISION, target)
            if policy is not None:
                annotations = {keys.TARGET: name}
                patch = {"metadata": {"annotations": annotations}}
                await client.patch(DAEMONSET, "default", "agent", patch)
            await scene(client, name)

    virtual_time.run(main())


async def test_an_approval_is_an_annotation_of_the_target_revision(
    cluster: Cluster, name: str, /
) -> None:
    approved = await rollout_approvals.approve(cluster, "ds/agent", "gpu")
    assert (approved.stage, approved.target.revision) == ("gpu", name)
    assert approved.target.commit == "c" * 40
    body = await cluster.get(CONTROLLER_REVISION, "default", name)
    revision = revisions.revision_of(body)
    assert revision is not None
    (approval,) = rollout_annotations.approvals([revision], approved.target)
    assert approval.stage == "gpu"
    again = await rollout_approvals.approve(cluster, "agent", "gpu", namespace="default")
    assert again.target.uid == approved.target.uid


@pytest.mark.parametrize(
    ("wanted", "kind", "message"),
    [
        (("ds/other", "gpu", ""), errors.NoMatch, "not found"),
        (("ds/agent", "gpu", "elsewhere"), errors.NoMatch, "not found"),
        (("ds/agent", "canary", ""), errors.UsageError, "those that do: gpu"),
        (("ds/agent", "gqu", ""), errors.UsageError, "no stage gqu needs an approval"),
    ],
)
async def test_an_impossible_approval_is_an_error(
    cluster: Cluster,
    target: str,
    /,
    wanted: tuple[str, str, str],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        await rollout_approvals.approve(cluster, *wanted)


@pytest.mark.play(policy=None)
async def test_without_a_rollout_nothing_is_approved(cluster: Cluster, name: str, /) -> None:
    with pytest.raises(errors.Refused, match="no staged rollout"):
        await rollout_approvals.approve(cluster, "ds/agent", "gpu")
    body = await cluster.get(CONTROLLER_REVISION, "default", name)
    assert names.APPROVE not in body["metadata"]["annotations"]


async def test_an_approval_names_the_hash_of_its_target_and_another_hash_is_refused(
    cluster: Cluster, name: str, /
) -> None:
    approved = await rollout_approvals.approve(cluster, "ds/agent", "gpu")
    hash = approved.target.hash
    body = await cluster.get(CONTROLLER_REVISION, "default", name)
    assert body["metadata"]["annotations"][names.APPROVE] == f"gpu={hash}"
    request = "ds/agent", "gpu", "", hash
    assert (await rollout_approvals.approve(cluster, *request)).target.hash == hash
    with pytest.raises(errors.Refused, match="another commit came meanwhile"):
        await rollout_approvals.approve(cluster, "agent", "gpu", hash="5d9f")


async def test_the_annotation_is_refused_if_the_repository_has_approvers(
    cluster: Cluster, name: str, /
) -> None:
    patch = {"metadata": {"annotations": {keys.APPROVERS: "team-gpu"}}}
    await cluster.patch(CONTROLLER_REVISION, "default", name, patch)
    request = "ds/agent", "gpu"
    with pytest.raises(errors.Refused, match=r"only the approvers.*team-gpu.*--commit"):
        await rollout_approvals.approve(cluster, *request)
    assert (await rollout_approvals.waiting(cluster, *request)).target.commit == "c" * 40
