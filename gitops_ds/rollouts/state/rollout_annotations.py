"""Annotations of a rollout: those that another writer changed or removed, which state nothing, and
the approvals of stages on a target revision.

Approvals are on the revision, so they approve no later rollout. If the repository has approvers,
the deployer lists the approvals in `gitops-ds.io/approvals`; otherwise users with permissions in
the cluster list the stages in `gitops-ds.io/approve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget, StageApproval
from gitops_ds.core.values import UNREADABLE_JSON
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import keys
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase


def foreign(live: Body, annotations: Iterable[str]) -> Iterator[str]:
    """Those of these annotations that a live object has, but not by us; none of an object whose
    owners are unknown.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    metadata = live.get("metadata") or {}
    stated, managers = metadata.get("annotations") or {}, metadata.get("managedFields") or ()
    ours = [
        owned_annotations(manager.get("fieldsV1") or {})
        for manager in managers
        if manager.get("manager") == names.FIELD_MANAGER
    ]
    for name in annotations if managers else ():
        if name in stated and not any(f"f:{name}" in owned for owned in ours):
            yield name


def owned_annotations(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The annotations in a set of fields (`fieldsV1`), each with the prefix `f:`."""
    return (fields.get("f:metadata") or {}).get("f:annotations") or {}


def edited(daemonset: DaemonSet) -> Iterator[str]:
    """The annotations for the rollout of a DaemonSet with a policy that another writer changed or
    removed.

    The deployer always states what is proven and the phase, and removes a target only in the write
    that states that its rollout is complete. Without a known announcement the names of the field
    managers decide, which any writer may copy.
    """
    annotations = daemonset.annotations
    yield from foreign(daemonset.raw, keys.READ_BY_ROLLOUTS)
    if keys.PROVEN not in annotations:
        yield keys.PROVEN
    if keys.TARGET not in annotations and annotations.get(keys.PHASE) != RolloutPhase.COMPLETE:
        yield keys.TARGET if keys.PHASE in annotations else keys.PHASE
    yield from daemonset.unannounced


def has_foreign_target(live: Body) -> bool:
    """Whether another writer named a target on a live DaemonSet."""
    return any(foreign(live, (keys.TARGET,)))


def is_missing_proof(annotation: str, daemonset: DaemonSet) -> bool:
    """Whether an annotation that `edited` named is the proof, which the DaemonSet lacks."""
    return annotation == keys.PROVEN and keys.PROVEN not in daemonset.annotations


def approvals(known: Iterable[Revision], target: RolloutTarget) -> tuple[StageApproval, ...]:
    """The approvals of the target; none if they are invalid or for another template."""
    revision = next((own for own in known if own.uid == target.uid), None)
    annotations = revisions.annotations_of(revision) if revision else {}
    read = _derived if keys.APPROVERS in annotations else _annotated
    return tuple(approval for approval in read(annotations) if approval.hash in ("", target.hash))


def approved_by(revision: Revision, approvers: str) -> Revision:
    """A target revision as one of a repository with these approvers, or without any: who may write
    the revision also writes the annotation that names them.
    """
    present = str(revisions.annotations_of(revision).get(keys.APPROVERS) or "")
    if bool(present) is bool(approvers) or names.ROLLOUT not in revisions.labels_of(revision):
        return revision
    return revisions.with_annotations(revision, {keys.APPROVERS: approvers or None})


def stated_approvers(approvers: Iterable[str]) -> dict[str, str]:
    """The annotation of a target revision that names the approvers of its repository."""
    return {keys.APPROVERS: ",".join(sorted(approvers))}


def approvers_of(revision: Revision) -> str | None:
    """The approvers of the repository of a target revision, None without any."""
    return revisions.annotations_of(revision).get(keys.APPROVERS)


def approvals_text(revision: Revision) -> str | None:
    """The text of `gitops-ds.io/approvals`, None without it; empty for one that does not count."""
    return revisions.annotations_of(revision).get(keys.APPROVALS)


def approved(stages: Iterable[StageApproval]) -> dict[str, str]:
    """The annotation of a target revision that approves stages by users of the cluster."""
    return {names.APPROVE: approve_text(stages)}


def approve_text(stages: Iterable[StageApproval]) -> str:
    """The text of `gitops-ds.io/approve`: `STAGE=HASH` or `STAGE`, separated by commas."""
    words = (f"{stage.stage}={stage.hash}" if stage.hash else stage.stage for stage in stages)
    return ",".join(sorted(set(words)))


def encoded_approvals(derived: Iterable[StageApproval]) -> str:
    """The text of `gitops-ds.io/approvals`."""
    return msgspec.json.encode(tuple(derived), order="sorted").decode()


def decoded_approvals(text: str) -> tuple[StageApproval, ...]:
    """The approvals in `gitops-ds.io/approvals`; none if they are invalid."""
    try:
        approvals = msgspec.json.decode(text or "[]", type=tuple[StageApproval, ...])
    except UNREADABLE_JSON:
        return ()
    return tuple(
        approval for approval in approvals if approval.hash
    )  # without a hash it could be for any target


def _derived(annotations: Mapping[str, Any]) -> tuple[StageApproval, ...]:
    return decoded_approvals(str(annotations.get(keys.APPROVALS) or ""))


def _annotated(annotations: Mapping[str, Any]) -> Iterator[StageApproval]:
    for word in str(annotations.get(names.APPROVE) or "").split(","):
        stage, equals, hash = (part.strip() for part in word.partition("="))
        if stage and bool(equals) == bool(hash):
            yield StageApproval(stage, hash)
