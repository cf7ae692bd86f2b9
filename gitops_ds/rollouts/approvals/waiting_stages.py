"""The stages of the rollouts of an applied commit that wait for an approval. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord, WaitingStage
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.rollouts.causes import template_files
from gitops_ds.rollouts.staging import staging
from gitops_ds.rollouts.state import proofs, rollout_annotations, target_revisions


def waiting(
    bundle: Bundle, live: Live, histories: Mapping[Key, TemplateHistory]
) -> Iterator[WaitingStage]:
    """The current stages that need an approval, one of each rollout that is not halted.

    The commits are those that the deployer recorded: others may write them on the target revision.
    """
    for manifest in staging.with_policy(bundle):
        old = live.objects.get(manifest.key)
        if old is None or manifest.holder is not None:
            continue
        known = live.targets.get(manifest.key, ())
        target = target_revisions.target_of(daemonsets.daemonset_of(old), known)
        if target is None or not target.staged:
            continue
        revision = next(own for own in known if own.uid == target.uid)
        recorded = histories.get(manifest.key, TemplateHistory()).target
        if recorded is None or proofs.identity(revision.template) != recorded.template:
            continue
        policy = rollout_policy.decode(bundle.rollouts[manifest.agent])
        stage = _current(policy, target_revisions.record_in(revision))
        if stage is None or stage.approval is None:
            continue
        approvals = rollout_annotations.approvals_text(revision)
        yield WaitingStage(
            daemonset=manifest.key,
            owner=str(old["metadata"].get("uid") or ""),
            revision=target.revision,
            uid=target.uid,
            hash=target.hash,
            commit=CommitId(recorded.commit),
            since=recorded.since,
            stage=stage.name,
            approvers=stage.approval.from_,
            files=template_files.deciding(manifest, bundle),
            annotation=approvals or "",
            is_forged=approvals == "",
            stages=tuple(planned.name for planned in policy.stages),
        )


def _current(policy: RolloutPolicy, record: RolloutRecord) -> Stage | None:
    """The first stage that is not passed; None for a halted rollout."""
    if record.halt is not None:
        return None
    return next((stage for stage in policy.stages if stage.name not in record.passed), None)
