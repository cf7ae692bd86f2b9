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


def foreign(live: Body, annotations: Iterable[str]) -> Iterator[str]:
    """Those of these annotations that a live object has, but not by us; none of an object whose
    owners are unknown.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    metadata = live.get("metadata") or {}
    stated, managers = metadata.get("annotations") or {}, metadata.get("managedFields") or ()
    ours = [
        owned_annotations(one.get("fieldsV1") or {})
        for one in managers
        if one.get("manager") == names.FIELD_MANAGER
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
    yield from foreign(daemonset.raw, names.READ_BY_ROLLOUTS)
    if names.PROVEN not in annotations:
        yield names.PROVEN
    if names.TARGET not in annotations and annotations.get(names.PHASE) != names.COMPLETE:
        yield names.TARGET if names.PHASE in annotations else names.PHASE
    yield from daemonset.unannounced


def approvals(known: Iterable[Revision], target: RolloutTarget) -> tuple[StageApproval, ...]:
    """The approvals of the target; none if they are invalid or for another template."""
    revision = next((one for one in known if one.uid == target.uid), None)
    annotations = revisions.annotations_of(revision) if revision else {}
    read = _derived if names.APPROVERS in annotations else _annotated
    return tuple(one for one in read(annotations) if one.hash in ("", target.hash))


def approved_by(revision: Revision, approvers: str) -> Revision:
    """A target revision as one of a repository with these approvers, or without any: who may write
    the revision also writes the annotation that names them.
    """
    present = str(revisions.annotations_of(revision).get(names.APPROVERS) or "")
    if bool(present) is bool(approvers) or names.ROLLOUT not in revisions.labels_of(revision):
        return revision
    return revisions.with_annotations(revision, {names.APPROVERS: approvers or None})


def approve_text(stages: Iterable[StageApproval]) -> str:
    """The text of `gitops-ds.io/approve`: `STAGE=HASH` or `STAGE`, separated by commas."""
    words = (f"{one.stage}={one.hash}" if one.hash else one.stage for one in stages)
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
    return tuple(one for one in approvals if one.hash)  # without a hash it could be for any target


def _derived(annotations: Mapping[str, Any]) -> tuple[StageApproval, ...]:
    return decoded_approvals(str(annotations.get(names.APPROVALS) or ""))


def _annotated(annotations: Mapping[str, Any]) -> Iterator[StageApproval]:
    for word in str(annotations.get(names.APPROVE) or "").split(","):
        stage, equals, hash = (part.strip() for part in word.partition("="))
        if stage and bool(equals) == bool(hash):
            yield StageApproval(stage, hash)
