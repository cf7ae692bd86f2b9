"""The inputs of a staged rollout that are in the objects of an observation."""

from __future__ import annotations

from gitops_ds.apimachinery.rollouts import halted_templates, rollout_annotations, target_revisions
from gitops_ds.model.decision import Observation
from gitops_ds.model.rollouts.staged_rollout import StageInputs


def observed(seen: Observation) -> StageInputs | None:
    """The inputs that an observation contains.

    None without a policy, and while its target revision is not known. Raises ValueError for a
    policy that can't be read.
    """
    daemonset = seen.daemonset
    policy_and_pools = target_revisions.policy_of(daemonset)
    target = target_revisions.target_of(daemonset, seen.revisions)
    if (
        policy_and_pools is None
        or target is None
        or daemonset.deleting
        or daemonset.selector is None
    ):
        return None
    policy, pools = policy_and_pools
    approvals = rollout_annotations.approvals(seen.revisions, target)
    record = target_revisions.record_of(seen.revisions, target)
    return StageInputs(
        policy,
        target,
        record,
        pools,
        approved=frozenset(one.stage for one in approvals),
        approvals=approvals,
        refused=record.refused,
        held=halted_templates.hold_reason(daemonset.annotations, target) if target.staged else "",
        halted=frozenset(one.hash for one in halted_templates.parse(daemonset.annotations)),
        foreign=next(rollout_annotations.edited(daemonset), ""),
    )
