"""The target revision of a staged rollout: a ControllerRevision that the DaemonSet does not own
yet.

It has no selector labels and no controller, so the built-in controller ignores it, and an owner
reference, so the garbage collector deletes it with its DaemonSet. The deployer writes it, with the
template; the controller adds the record of the rollout, and makes it one of the DaemonSet's own
revisions when the rollout is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gitops_ds.apimachinery import revisions
from gitops_ds.model import names
from gitops_ds.model.daemonset import DaemonSet, Owner
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, Body
from gitops_ds.model.rollouts.rollout_policy import RolloutPolicy, decode
from gitops_ds.model.rollouts.staged_rollout import RolloutRecord, RolloutTarget
from gitops_ds.model.sources.bundle import Pool, Requirement

# The annotations that the deployer gives a target revision.
_APPLIED = (
    names.COMMIT,
    names.TEMPLATE_DIGEST,
    names.PROVEN_REVISION,
    names.SINCE,
    names.CHANGE_CAUSE,
)


def body_of(daemonset: DaemonSet, template: Body, commit: str) -> dict[str, Any]:
    """The target revision for a template, which must have the defaults of the API server."""
    hash = revisions.hash_of(template, daemonset.collision_count)
    # The admission plugin OwnerReferencesPermissionEnforcement permits blockOwnerDeletion only with
    # the permission to update the finalizers of the owner, which the applying account may lack.
    blocking = {"controller": False, "blockOwnerDeletion": False}
    reference = {**revisions.owner_reference(daemonset), **blocking}
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": f"{daemonset.key.name}-{hash}",
            "namespace": daemonset.key.namespace,
            "labels": {names.ROLLOUT: hash},
            "annotations": {names.COMMIT: commit} if commit else {},
            "ownerReferences": [reference],
        },
        "revision": 0,
        "data": revisions.data(template),
    }


def renewed(daemonset: DaemonSet, revision: Revision) -> dict[str, Any]:
    """The target revision as it was applied, from the one in the cluster."""
    annotations = (revision.raw.get("metadata") or {}).get("annotations") or {}
    kept = {name: annotations[name] for name in _APPLIED if name in annotations}
    body = body_of(daemonset, revision.template, "")
    body["metadata"] |= {
        "name": revision.name,
        "labels": _rollout_label(revision),
        "annotations": kept,
    }
    return body


def _rollout_label(revision: Revision) -> dict[str, str]:
    return {names.ROLLOUT: revisions.labels_of(revision).get(names.ROLLOUT, "")}


def target_of(
    daemonset: DaemonSet, own_revisions: Iterable[Revision], commit: str = ""
) -> RolloutTarget | None:
    """The target of the DaemonSet's rollout among the revisions of its namespace.

    Without a target revision, or when the DaemonSet has its template already, the target is the
    DaemonSet's own template. A target that the DaemonSet got early stays the target until its
    rollout is complete. None while the target revision in its annotation is unknown.
    """
    name = daemonset.annotations.get(names.TARGET, "")
    if not name:
        return RolloutTarget("", daemonset.template, commit=commit)
    revision = next((one for one in own_revisions if one.name == name), None)
    if revision is None:
        return None
    if (
        revisions.same_template(revision.template, daemonset.template)
        and not record_in(revision).early
    ):
        return RolloutTarget("", daemonset.template, commit=commit)
    annotations = (revision.raw.get("metadata") or {}).get("annotations") or {}
    hash = revision.hash or revisions.labels_of(revision).get(names.ROLLOUT, "")
    return RolloutTarget(
        hash,
        revision.template,
        revision.name,
        revision.uid,
        str(annotations.get(names.COMMIT) or ""),
    )


def record_of(own_revisions: Iterable[Revision], target: RolloutTarget) -> RolloutRecord:
    """The record of the rollout; an empty one if it is missing or invalid."""
    revision = next((one for one in own_revisions if one.uid == target.uid), None)
    return record_in(revision) if revision else RolloutRecord()


def record_in(target: Revision) -> RolloutRecord:
    """The record of the rollout in a target revision; an empty one if it is invalid."""
    annotations = (target.raw.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(names.ROLLOUT_RECORD)
    try:
        return msgspec.json.decode(str(text), type=RolloutRecord) if text else RolloutRecord()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return RolloutRecord()


def encoded(record: RolloutRecord) -> str:
    """The record as the text of its annotation."""
    return msgspec.json.encode(record, order="sorted").decode()


def daemonset_of(revision: Revision) -> Owner | None:
    """The DaemonSet of a target revision; None for any other revision, also for a promoted one
    whose rollout is complete.
    """
    metadata = revision.raw.get("metadata") or {}
    if names.ROLLOUT not in revisions.labels_of(revision):
        return None
    if is_promoted(revision) and not is_unproved(revision):
        return None
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("kind") == DAEMONSET.kind:
            return Owner(DAEMONSET.kind, str(reference.get("name")), str(reference.get("uid")))
    return None


def promotion(daemonset: DaemonSet, uid: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The merge patch that makes a target revision one of the DaemonSet's own, which the deployer
    no longer tracks. `labels` are added.
    """
    return {
        "metadata": {
            "uid": uid,
            "labels": {names.ROLLOUT: None, names.OWNER_LABEL: None, **labels},
            "annotations": {names.TRACKING_ID: None},
            "ownerReferences": [revisions.owner_reference(daemonset)],
        }
    }


def is_promoted(revision: Revision) -> bool:
    """Whether the DaemonSet owns the revision: it has the template, or the revision never was a
    target.
    """
    return revisions.owner_of(revision) is not None


def is_unproved(revision: Revision) -> bool:
    """Whether the DaemonSet owns a revision whose rollout is not complete."""
    if not is_promoted(revision):
        return False
    record = record_in(revision)
    return record.early or record.unproved


class _PoolText(msgspec.Struct, frozen=True):
    name: str
    match: tuple[tuple[str, str, tuple[str, ...]], ...]


class _PolicyText(msgspec.Struct, frozen=True):
    policy: dict[str, Any]
    pools: tuple[_PoolText, ...] = ()


def policy_text(document: Body, pools: Iterable[Pool]) -> str:
    """A policy document as an annotation of the DaemonSet, with its pools; equal for equal
    policies.
    """
    named = {name for stage in document.get("stages") or () for name in _pool_names(stage)}
    texts = (
        _PoolText(pool.name, tuple((one.key, one.operator, one.values) for one in pool.match))
        for pool in pools
        if pool.name in named
    )
    return msgspec.json.encode(_PolicyText(dict(document), tuple(texts)), order="sorted").decode()


def policy_of(daemonset: DaemonSet) -> tuple[RolloutPolicy, tuple[Pool, ...]] | None:
    """The policy of a DaemonSet and its pools; None without a policy.

    Raises ValueError for an annotation without a valid policy.
    """
    text = daemonset.annotations.get(names.ROLLOUT_POLICY)
    if not text:
        return None
    try:
        policy_text = msgspec.json.decode(text, type=_PolicyText)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{names.ROLLOUT_POLICY}: {error}") from None
    pools = tuple(
        Pool(pool.name, tuple(Requirement(*one) for one in pool.match))
        for pool in policy_text.pools
    )
    return decode(policy_text.policy), pools


def _pool_names(stage: Any) -> tuple[str, ...]:
    where = stage.get("where") if isinstance(stage, Mapping) else None
    pool = where.get("pool") if isinstance(where, Mapping) else None
    return (pool,) if isinstance(pool, str) else tuple(pool or ())
