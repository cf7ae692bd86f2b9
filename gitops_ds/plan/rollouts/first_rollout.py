"""The rollout that ends before a newer template is the target (`supersede: finish-first`). Pure.

A revert needs no target, so it never waits. A rollout that can't end by itself, because it was
halted or its template is on hold, is replaced.
"""

from __future__ import annotations

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import halted_templates, proofs, target_revisions
from gitops_ds.model import names
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import Body, Key, short
from gitops_ds.model.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.model.rollouts.staged_rollout import RolloutTarget
from gitops_ds.model.skip_reasons import Skipped, SkipReason


def running(
    old: Body, target: Revision | None, current: Revision | None, policy: RolloutPolicy
) -> Revision | None:
    """The target revision of the rollout that ends first, None without one.

    `target` is the revision of the template in Git, if known, `current` that of the rollout in
    progress.
    """
    if policy.supersede != "finish-first" or current is None:
        return None
    if target is not None and target.name == current.name:
        return None
    if target_revisions.record_in(current).halt is not None:
        return None
    if proofs.proof_in(current) is not None:  # complete, under the revision of an edit
        return None
    hash = proofs.hash_of(current)
    source = str(revisions.annotations_of(current).get(names.TEMPLATE_DIGEST) or "")
    wanted = RolloutTarget(hash, current.template, hashes=frozenset({hash}), source=source)
    annotations = (old.get("metadata") or {}).get("annotations") or {}
    return None if halted_templates.hold_reason(annotations, wanted) else current


def skipped(daemonset: Key, running: Revision) -> Skipped:
    """The message for a template that waits."""
    commit = short(revisions.annotations_of(running).get(names.COMMIT))
    of = f" of commit {commit}" if commit else ""
    message = (
        f"the template of {daemonset} waits for the end of the rollout{of} "
        "(supersede: finish-first)"
    )
    return Skipped(SkipReason.FINISH_FIRST, message, daemonset)
