"""Approvals of stages of a staged rollout: an annotation of its target revision, or a signed, empty
commit with a trailer.

The next rollout has another target revision, so it needs new approvals. The annotation requires
permission to patch ControllerRevisions in the namespace, unless the settings of the repository have
approvers: then signed commits and reviews of pull requests count instead.
"""

from __future__ import annotations

import msgspec

from gitops_ds.cli.commits import git_commit
from gitops_ds.cli.commits.git_commit import Proposal, Proposed
from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, ClusterReader
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, CommitId, Key, short
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget, StageApproval
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.state import daemonset_statements, rollout_annotations, target_revisions
from gitops_ds.status import agents


class ApprovedStage(msgspec.Struct, frozen=True):
    """A stage that is approved, and the target of its rollout."""

    daemonset: Key
    stage: str
    target: RolloutTarget


async def approve(
    cluster: Cluster, name: str, stage: str, namespace: str = "", hash: str = ""
) -> ApprovedStage:
    """Approves a stage of the rollout in progress, by an annotation with the target's hash; `hash`
    is the only one that is approved, empty: that of the present target.

    Raises NoMatch without such a DaemonSet; Refused without a rollout, for another target than that
    of the request, and if the annotation does not count; UsageError for an unknown stage or one
    that needs no approval; Conflict if the rollout changes meanwhile; and ClusterError.
    """
    daemonset, target, own_revisions = await _rollout(cluster, name, stage, namespace, hash)
    (revision,) = own_revisions
    if (approvers := rollout_annotations.approvers_of(revision)) is not None:
        raise errors.Refused(
            f"{daemonset.key}: only the approvers of the repository "
            f"({approvers}) approve, by a signed commit (--commit) or a review "
            "of the pull request"
        )
    approved = {
        *rollout_annotations.approvals(own_revisions, target),
        StageApproval(stage, target.hash),
    }
    metadata = {
        "resourceVersion": revision.raw["metadata"].get("resourceVersion"),
        "annotations": rollout_annotations.approved(approved),
    }
    space = daemonset.key.namespace
    await cluster.patch(CONTROLLER_REVISION, space, target.revision, {"metadata": metadata})
    return ApprovedStage(daemonset.key, stage, target)


async def waiting(
    cluster: ClusterReader, name: str, stage: str, namespace: str = "", hash: str = ""
) -> ApprovedStage:
    """The stage and its target, for an approval by a commit. Raises the errors of `approve`."""
    daemonset, target, _ = await _rollout(cluster, name, stage, namespace, hash)
    if not target.commit:
        raise errors.Refused(f"{daemonset.key}: the target {target.revision} has no commit")
    return ApprovedStage(daemonset.key, stage, target)


async def _rollout(
    cluster: ClusterReader, named: str, stage: str, namespace: str, hash: str
) -> tuple[DaemonSet, RolloutTarget, list[Revision]]:
    daemonset = await _daemonset(cluster, named, namespace)
    _check_stage(daemonset, stage)
    space = daemonset.key.namespace
    name = daemonset_statements.target_name(daemonset.annotations)
    body = await cluster.get(CONTROLLER_REVISION, space, name)
    own_revisions = [
        revision for revision in (revisions.revision_of(body),) if revision is not None
    ]
    target = target_revisions.target_of(daemonset, own_revisions)
    if target is None or not target.staged:
        raise errors.Refused(f"{daemonset.key} has the template of its target already")
    if hash and hash != target.hash:
        raise errors.Refused(
            f"{daemonset.key}: the target has the hash {target.hash}, not {hash}: another "
            "commit came meanwhile"
        )
    return daemonset, target, own_revisions


async def _daemonset(cluster: ClusterReader, name: str, namespace: str) -> DaemonSet:
    short = agents.name_of(name)
    matches = [
        daemonset
        for daemonset in map(daemonsets.daemonset_of, (await cluster.list(DAEMONSET)).items)
        if daemonset.key.name == short and namespace in ("", daemonset.key.namespace)
    ]
    if not matches:
        raise errors.NoMatch(f'daemonsets.apps "{short}" not found: `gitops-ds get` lists them')
    if len(matches) > 1:
        spaces = ", ".join(daemonset.key.namespace for daemonset in matches)
        raise errors.UsageError(f"{short} exists in the namespaces {spaces}: choose one with -n")
    return matches[0]


def _check_stage(daemonset: DaemonSet, stage: str) -> None:
    try:
        policy_and_pools = target_revisions.policy_of(daemonset)
    except ValueError as error:
        raise errors.Refused(f"{daemonset.key}: {error}") from None
    if policy_and_pools is None or not daemonset_statements.target_name(daemonset.annotations):
        raise errors.Refused(f"{daemonset.key} has no staged rollout in progress")
    policy, _ = policy_and_pools
    waiting = [step.name for step in policy.stages if step.approval is not None]
    if stage not in waiting:
        stage_names = ", ".join(waiting) or "none"
        raise errors.UsageError(f"no stage {stage} needs an approval; those that do: {stage_names}")


async def commit_approval(
    named: open_repository.RepositoryRef, proposal: Proposal, approved: ApprovedStage
) -> Proposed:
    """Builds the commit on the branch's tip, which has the commit of the rollout in its history;
    pushes it if requested.

    Raises Refused for a user whose commits are not signed, and for another branch.
    """
    by = git_commit.signature(named, proposal)
    if by.signing is None:
        raise errors.Refused(
            "an approval must be signed: set commit.gpgSign and user.signingKey (git config)"
        )
    key, rollout = approved.daemonset, CommitId(approved.target.commit)
    subject = f"Approve stage {approved.stage} of {key.name}, commit {short(rollout)}"
    values = (f"{key.namespace}/{key.name}/{approved.stage} {rollout}",)
    async with git_commit.opened(named, proposal) as repository:

        async def build(tip: CommitId) -> CommitId:
            if not await repository.has(rollout) or not await repository.is_ancestor(rollout, tip):
                raise errors.Refused(
                    f"commit {short(rollout)} of the rollout is not in the history of the branch"
                )
            return await repository.commit_approval(tip, values, subject, by)

        return await git_commit.propose(repository, proposal, build)
