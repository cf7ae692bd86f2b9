"""The target revision of a staged rollout: a ControllerRevision that the DaemonSet does not own
yet.

It has no selector labels and no controller, so the built-in controller ignores it, and an owner
reference, so the garbage collector deletes it with its DaemonSet. The deployer writes it, with the
template; the controller adds the record of the rollout, and makes it one of the DaemonSet's own
revisions when the rollout is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Owner
from gitops_ds.core.decision import RecordRollout
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, Body, Key
from gitops_ds.core.rollouts.proven_templates import TemplateProof
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy, decode
from gitops_ds.core.rollouts.staged_rollout import RECORD, RolloutRecord, RolloutTarget
from gitops_ds.core.sources.bundle import Pool, Requirement
from gitops_ds.core.values import UNREADABLE_JSON, replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import keys, proofs

# Who may write DaemonSets can't write statements about a revision to one.
NEVER_COPIED = keys.OF_REVISIONS
# The annotations that the deployer gives a target revision.
_APPLIED = (
    names.COMMIT,
    keys.TEMPLATE_DIGEST,
    keys.SINCE,
    keys.COMMITS,
    names.CHANGE_CAUSE,
)


def body_of(
    daemonset: DaemonSet, template: Body, commit: str, taken: Set[str] = frozenset()
) -> dict[str, Any]:
    """The target revision for a template, which must have the defaults of the API server. `taken`
    are the names of other revisions in its namespace: the DaemonSet may own one with the template,
    and the content of a revision never changes.
    """
    hash = revisions.hash_of(template, daemonset.collision_count)
    name = f"{daemonset.key.name}-{hash}"
    names_in_turn = (name, *(f"{name}-target{number or ''}" for number in range(len(taken) + 1)))
    # The admission plugin OwnerReferencesPermissionEnforcement permits blockOwnerDeletion only with
    # the permission to update the finalizers of the owner, which the applying account may lack.
    blocking = {"controller": False, "blockOwnerDeletion": False}
    reference = {**revisions.owner_reference(daemonset), **blocking}
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": next(candidate for candidate in names_in_turn if candidate not in taken),
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
    annotations = revisions.annotations_of(revision)
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
    daemonset: DaemonSet, own_revisions: Sequence[Revision], commit: str = ""
) -> RolloutTarget | None:
    """What the nodes of a DaemonSet get, by the revisions of its namespace: the template of its
    target revision in stages, else the proven one.

    Without a proof on the DaemonSet, which the deployer writes, nothing is known about its template
    and it counts as edited. None while the target revision in its annotation is unknown.
    """
    proof = proofs.in_force(daemonset.annotations)
    if not (name := daemonset.annotations.get(keys.TARGET, "")):
        return _proven(daemonset, own_revisions, proof, commit)
    revision = next((own for own in own_revisions if own.name == name), None)
    if revision is None:
        return None
    template = proofs.identity(revision.template)
    same = [own for own in own_revisions if proofs.identity(own.template) == template]
    owned = next((own for own in same if is_promoted(own) and own.hash), revision)
    return RolloutTarget(
        proofs.hash_of(owned),
        revision.template,
        revision.name,
        revision.uid,
        str(revisions.annotations_of(revision).get(names.COMMIT) or ""),
        staged=True,
        hashes=frozenset(filter(None, map(proofs.hash_of, same))),
        proven=proofs.hashes_in_force(proof, own_revisions),
        since=proof.since if proof else 0.0,
        source=source_of(revision),
    )


def _proven(
    daemonset: DaemonSet,
    own_revisions: Sequence[Revision],
    proof: TemplateProof | None,
    commit: str,
) -> RolloutTarget:
    """The proven template as the target: that of the DaemonSet, or after an edit the one of the
    owned revision that has it, if it exists.
    """
    live = proofs.identity(daemonset.template)
    wanted = proof.template if proof else live
    same = [revision for revision in own_revisions if proofs.identity(revision.template) == wanted]
    owned = next((own for own in same if is_promoted(own) and own.hash), None)
    hashes = frozenset(filter(None, map(proofs.hash_of, same)))
    hashes |= proofs.hashes_in_force(proof, ())
    edited = proof is None or live != wanted
    return RolloutTarget(
        owned.hash if owned else "",
        owned.template if owned else daemonset.template,
        owned.name if owned and live != wanted else "",
        owned.uid if owned and live != wanted else "",
        commit,
        hashes=hashes,
        proven=hashes,
        since=proof.since if proof else 0.0,
        edited=edited,
    )


def proven_template(daemonset: DaemonSet, own_revisions: Iterable[Revision]) -> Body | None:
    """The template of the proof in force, None if nothing has it. It is known by its content, so
    that an edit of the DaemonSet or another revision is never taken for it.
    """
    proof = proofs.in_force(daemonset.annotations)
    known = (daemonset.template, *(revision.template for revision in own_revisions))
    return next(
        (revision for revision in known if proof and proofs.identity(revision) == proof.template),
        None,
    )


def record_of(own_revisions: Iterable[Revision], target: RolloutTarget) -> RolloutRecord:
    """The record of the rollout; an empty one if it is missing or invalid."""
    revision = next((own for own in own_revisions if own.uid == target.uid), None)
    return record_in(revision) if revision else RolloutRecord()


def record_in(target: Revision) -> RolloutRecord:
    """The record of the rollout in a target revision; an empty one if it is invalid."""
    return decoded(str(revisions.annotations_of(target).get(keys.ROLLOUT_RECORD) or ""))


def recorded(key: Key, uid: str, record: RolloutRecord, why: str) -> RecordRollout:
    """The action that writes the record of a rollout to its target revision."""
    return RecordRollout(key, uid, encoded(record), why, keys.ROLLOUT_RECORD)


def record_patch(target: Revision, record: RolloutRecord) -> dict[str, Any]:
    """The merge patch of a target revision that writes the record of its rollout."""
    annotations = {keys.ROLLOUT_RECORD: encoded(record)}
    return {"metadata": {"uid": target.raw["metadata"]["uid"], "annotations": annotations}}


def unrecorded(target: Revision, message: str) -> Revision:
    """The target revision as if its record stated that the API server refuses it."""
    record = replace(record_in(target), refused=message, refuses=RECORD)
    return revisions.with_annotations(target, {keys.ROLLOUT_RECORD: encoded(record)})


def decoded(text: str) -> RolloutRecord:
    """The record in the text of its annotation; an empty one if it is missing or invalid."""
    try:
        return msgspec.json.decode(text, type=RolloutRecord) if text else RolloutRecord()
    except UNREADABLE_JSON:
        return RolloutRecord()


def stated(source: str, since: str, commits: Sequence[str]) -> dict[str, str]:
    """The annotations of a target revision: the digest of its template in Git, the last applied
    commit without it, and the commits that turned the template before into it, if several.
    """
    return {
        keys.TEMPLATE_DIGEST: source,
        **({keys.SINCE: since} if since else {}),
        **({keys.COMMITS: ",".join(commits)} if len(commits) > 1 else {}),
    }


def source_of(target: Revision) -> str:
    """The digest of its template in Git; empty if unknown."""
    return str(revisions.annotations_of(target).get(keys.TEMPLATE_DIGEST) or "")


def since_of(target: Revision) -> str:
    """The last applied commit without its template; empty if unknown."""
    return str(revisions.annotations_of(target).get(keys.SINCE) or "")


def proven_revision(target: Revision) -> str:
    """The name of the revision that the DaemonSet keeps, as versions before 0.9 stated it."""
    return str(revisions.annotations_of(target).get(keys.PROVEN_REVISION) or "")


def is_marked(annotations: Mapping[str, Any]) -> bool:
    """Whether a revision with these annotations is or was one of the deployer."""
    marks = (names.COMMIT, keys.ROLLOUT_RECORD, keys.TEMPLATE_DIGEST)
    return any(name in annotations for name in marks)


def commits_of(target: Revision) -> tuple[str, ...]:
    """The commits that turned the template before into that of a target revision, newest first: the
    first one gave it.
    """
    annotations = revisions.annotations_of(target)
    commit = str(annotations.get(names.COMMIT) or "")
    some = str(annotations.get(keys.COMMITS) or "").split(",")
    return tuple(dict.fromkeys(filter(None, (commit, *some))))


def encoded(record: RolloutRecord) -> str:
    """The record as the text of its annotation."""
    return msgspec.json.encode(record, order="sorted").decode()


def daemonset_of(revision: Revision) -> Owner | None:
    """The DaemonSet of a target revision; None for any other revision, also for an owned one that
    is proven.
    """
    metadata = revision.raw.get("metadata") or {}
    if names.ROLLOUT not in revisions.labels_of(revision):
        return None
    if is_promoted(revision) and proofs.proof_in(revision) is not None:
        return None
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("kind") == DAEMONSET.kind:
            return Owner(DAEMONSET.kind, str(reference.get("name")), str(reference.get("uid")))
    return None


def promotion(
    daemonset: DaemonSet, uid: str, labels: Mapping[str, str], proof: str
) -> dict[str, Any]:
    """The merge patch that makes a target revision one of the DaemonSet's own, which the deployer
    no longer tracks. `labels` are added. `proof` is the text of its proof, empty for a template
    that the DaemonSet gets before its rollout is complete.
    """
    return {
        "metadata": {
            "uid": uid,
            "labels": {names.ROLLOUT: None, names.OWNER_LABEL: None, **labels},
            "annotations": {names.TRACKING_ID: None, **({keys.PROOF: proof} if proof else {})},
            "ownerReferences": [revisions.owner_reference(daemonset)],
        }
    }


def is_promoted(revision: Revision) -> bool:
    """Whether the DaemonSet owns the revision: it has the template, or the revision never was a
    target.
    """
    return revisions.owner_of(revision) is not None


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
        _PoolText(
            pool.name,
            tuple(
                (requirement.key, requirement.operator, requirement.values)
                for requirement in pool.match
            ),
        )
        for pool in pools
        if pool.name in named
    )
    return msgspec.json.encode(_PolicyText(dict(document), tuple(texts)), order="sorted").decode()


def policy_of(daemonset: DaemonSet) -> tuple[RolloutPolicy, tuple[Pool, ...]] | None:
    """The policy of a DaemonSet and its pools; None without a policy.

    Raises ValueError for an annotation without a valid policy.
    """
    return policy_in(daemonset.annotations.get(keys.ROLLOUT_POLICY) or "")


def policy_in(text: str) -> tuple[RolloutPolicy, tuple[Pool, ...]] | None:
    """The policy and the pools in the text of the annotation; None for an empty one.

    Raises ValueError for a text without a valid policy.
    """
    if not text:
        return None
    try:
        policy_text = msgspec.json.decode(text, type=_PolicyText)
    except UNREADABLE_JSON as error:
        raise ValueError(f"{keys.ROLLOUT_POLICY}: {error}") from None
    pools = tuple(
        Pool(pool.name, tuple(Requirement(*requirement) for requirement in pool.match))
        for pool in policy_text.pools
    )
    return decode(policy_text.policy), pools


def _pool_names(stage: Any) -> tuple[str, ...]:
    where = stage.get("where") if isinstance(stage, Mapping) else None
    pool = where.get("pool") if isinstance(where, Mapping) else None
    return (pool,) if isinstance(pool, str) else tuple(pool or ())
