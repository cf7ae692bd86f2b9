"""Approvals of stages of a staged rollout, as an annotation of its target revision.

The next rollout has another target revision, so it needs approvals of its own. Who may approve is a
matter of the right to patch ControllerRevisions in the namespace.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds import errors
from gitops_ds.apimachinery import daemonsets, revisions, target_revisions
from gitops_ds.fleet import agents
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, Key
from gitops_ds.model.staged_rollout import RolloutTarget


@dataclass(frozen=True, slots=True)
class ApprovedStage:
    """A stage that is approved, and the target of its rollout."""

    daemonset: Key
    stage: str
    target: RolloutTarget


async def approve(cluster: Cluster, name: str, namespace: str, stage: str) -> ApprovedStage:
    """Approves a stage of the rollout of `ds/NAME` that is under way.

    Raises NoMatch without such a DaemonSet, Refused without a rollout, UsageError for a stage that
    the policy does not have or that needs no approval, Conflict where the rollout changes
    meanwhile, and ClusterError.
    """
    daemonset = await _daemonset(cluster, name, namespace)
    _check_stage(daemonset, stage)
    space = daemonset.key.namespace
    body = await cluster.get(CONTROLLER_REVISION, space, daemonset.annotations[names.TARGET])
    known = [found for found in (revisions.revision_of(body),) if found is not None]
    target = target_revisions.target_of(daemonset, known)
    if target is None or not target.revision:
        raise errors.Refused(f"{daemonset.key} has the template of its target already")
    approved = target_revisions.approved_stages(known, target) | {stage}
    metadata = {
        "resourceVersion": body["metadata"].get("resourceVersion"),
        "annotations": {names.APPROVE: ",".join(sorted(approved))},
    }
    await cluster.patch(CONTROLLER_REVISION, space, target.revision, {"metadata": metadata})
    return ApprovedStage(daemonset.key, stage, target)


async def _daemonset(cluster: Cluster, name: str, namespace: str) -> DaemonSet:
    short = agents.name_of(name)
    found = [
        one
        for one in map(daemonsets.daemonset_of, (await cluster.list(DAEMONSET)).items)
        if one.key.name == short and namespace in ("", one.key.namespace)
    ]
    if not found:
        raise errors.NoMatch(f'daemonsets.apps "{short}" not found: `gitops-ds get` lists them')
    if len(found) > 1:
        spaces = ", ".join(one.key.namespace for one in found)
        raise errors.UsageError(f"{short} exists in the namespaces {spaces}: choose one with -n")
    return found[0]


def _check_stage(daemonset: DaemonSet, stage: str) -> None:
    try:
        found = target_revisions.policy_of(daemonset)
    except ValueError as error:
        raise errors.Refused(f"{daemonset.key}: {error}") from None
    if found is None or not daemonset.annotations.get(names.TARGET):
        raise errors.Refused(f"{daemonset.key} has no staged rollout that is under way")
    policy, _ = found
    waiting = [one.name for one in policy.stages if one.approval is not None]
    if stage not in waiting:
        known = ", ".join(waiting) or "none"
        raise errors.UsageError(f"no stage {stage} needs an approval; those that do: {known}")
