"""The inputs of a staged rollout: those in the objects of an observation, and those from outside.

Pure, so that a decision can be repeated from a line of the journal.
"""

from __future__ import annotations

from gitops_ds.apimachinery.rollouts import (
    approval_annotations,
    edited_annotations,
    halted_templates,
    target_revisions,
)
from gitops_ds.model.decision import Observation
from gitops_ds.model.rollouts.staged_rollout import StageInputs
from gitops_ds.model.rollouts.staged_turn import OutsideInputs, StagedTurn, outcome_of
from gitops_ds.model.values import replace
from gitops_ds.rollouts import pinned_pods
from gitops_ds.rollouts.pinned_pods import StagedDecision


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
    approvals = approval_annotations.approvals(seen.revisions, target)
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
        foreign=next(edited_annotations.read_by_rollouts(daemonset), ""),
    )


def turn_of(inputs: StageInputs, staged: StagedDecision, *, owned: bool) -> StagedTurn:
    """A turn for the journal."""
    outside = OutsideInputs(**{name: getattr(inputs, name) for name in _OUTSIDE})
    return StagedTurn(outside, owned, outcome_of(staged.stages))


def repeated(seen: Observation, turn: StagedTurn) -> StagedDecision | None:
    """The repeated decision of a turn; None if the observation has no staged rollout that this
    version can read.
    """
    try:
        inputs = observed(seen)
    except ValueError:
        return None
    if inputs is None:
        return None
    inputs = replace(inputs, **{name: getattr(turn.outside, name) for name in _OUTSIDE})
    return (pinned_pods.decide_owned if turn.owned else pinned_pods.decide_pinned)(seen, inputs)


_OUTSIDE = OutsideInputs.__struct_fields__
