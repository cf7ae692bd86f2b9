"""The DaemonSet's ControllerRevisions: the current one, missing ones, and old ones to delete.

The revision of an earlier template gets the highest number. A revision of an existing pod is never
deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Pod
from gitops_ds.core.decision import (
    Action,
    CreateRevision,
    DeleteRevision,
    LabelRevision,
    RelabelPod,
    RenumberRevision,
)
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, POD, Key, annotations_of
from gitops_ds.core.values import replace
from gitops_ds.daemonset.claims import Claim
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import target_revisions


class RevisionHistory(msgspec.Struct, frozen=True):
    """The hash of the wanted template, the other revisions (lowest number first), and the required
    writes.

    `relabelled` maps the hash of a duplicate to the kept one: pods with it run the wanted template
    too.
    """

    hash: str
    old: tuple[Revision, ...]
    actions: tuple[Action, ...]
    relabelled: frozenset[str] = frozenset()


def construct(daemonset: DaemonSet, claim: Claim, namesake: Revision | None) -> RevisionHistory:
    """The history for the current template.

    `namesake` is a foreign revision with the name of the missing one. If it has the same template,
    its hash is used and nothing is written until it is gone, as in upstream (update.go, snapshot):
    the revision of a DaemonSet that was deleted and created again is removed by the garbage
    collector.
    """
    actions: list[Action] = [
        _label(daemonset, revision) for revision in claim.revisions if not revision.hash
    ]
    current = _current(daemonset, claim)
    uids = {revision.uid for revision in current}
    old = tuple(sorted((r for r in claim.revisions if r.uid not in uids), key=_age))
    number = max((revision.number for revision in old), default=0) + 1
    if not current:
        body = revisions.new(_at_birth(daemonset), number, target_revisions.NEVER_COPIED)
        key = _key(daemonset, body["metadata"]["name"])
        if (
            namesake is None
            or key.name != namesake.name
            or not revisions.same_template(namesake.template, daemonset.template)
        ):
            why = f"the template is new: revision {number}"
            actions.append(CreateRevision(key, body, daemonset.collision_count, why))
        return RevisionHistory(body["metadata"]["labels"][names.REVISION_HASH], old, tuple(actions))
    kept = max(current, key=lambda revision: (not revision.deleting, *_age(revision)))
    duplicates = [revision for revision in current if revision is not kept]
    lost = frozenset(hash_in(revision) for revision in duplicates) - {hash_in(kept)}
    actions += _deduplicate(daemonset, kept, duplicates, claim.pods)
    if kept.number < number:
        why = f"the template is that of revision {kept.number} again"
        actions.append(RenumberRevision(_key(daemonset, kept.name), kept.uid, number, why))
    return RevisionHistory(hash_in(kept), old, tuple(actions), lost)


def _at_birth(daemonset: DaemonSet) -> DaemonSet:
    """With its commit in the cluster if none is announced: the deployer announces that of a new
    DaemonSet after its creation, when its first revision is made, which keeps what it gets here.
    """
    commit = annotations_of(daemonset.raw).get(names.COMMIT)
    if not commit or names.COMMIT in daemonset.annotations:
        return daemonset
    return replace(daemonset, annotations={**daemonset.annotations, names.COMMIT: commit})


def _current(daemonset: DaemonSet, claim: Claim) -> list[Revision]:
    """The revisions of the wanted template.

    A newer API server adds defaulted fields to a template without a write since the last
    observation. A new revision, and with it a restart of every pod, would be useless. So the
    template of an observed generation is that of the latest revision if it only has additional
    fields, and the pods of it have that revision's hash: if the latest revision had been deleted,
    they would have its hash, not that of an older one. Upstream compares bytes, and restarts.
    """
    same = [
        revision
        for revision in claim.revisions
        if revisions.same_template(revision.template, daemonset.template)
    ]
    latest = max(claim.revisions, key=_age, default=None)
    if same or latest is None or daemonset.observed_generation != daemonset.generation:
        return same
    made_from_it = {
        pod.hash
        for pod in claim.pods
        if pod.template_generation and pod.template_generation == daemonset.template_generation
    }
    return (
        [latest]
        if made_from_it == {hash_in(latest)}
        and revisions.holds_more(daemonset.template, latest.template)
        else []
    )


def prune(
    daemonset: DaemonSet, old: Sequence[Revision], pods: Sequence[Pod]
) -> tuple[DeleteRevision, ...]:
    """The oldest revisions above the limit that no pod uses; `old` is sorted, lowest number first,
    without the current one.

    A revision that is already being deleted (a finalizer may delay that) neither counts nor is
    deleted again.
    """
    staying = [revision for revision in old if not revision.deleting]
    excess = len(staying) - daemonset.history_limit
    if excess <= 0:
        return ()
    live = {pod.hash for pod in pods if pod.node}
    dead = [revision for revision in staying if hash_in(revision) not in live]
    why = f"more than {daemonset.history_limit} old revisions, and no pod runs this one"
    return tuple(
        DeleteRevision(_key(daemonset, revision.name), revision.uid, why)
        for revision in dead[:excess]
    )


def hash_in(revision: Revision) -> str:
    """The hash of its pods: its label, or the name that becomes its label."""
    return revision.hash or revision.name


def _deduplicate(
    daemonset: DaemonSet, kept: Revision, duplicates: Sequence[Revision], pods: Sequence[Pod]
) -> list[Action]:
    """Relabels the pods of duplicates first, then deletes the duplicates.

    Upstream relabels every pod, also those with an older template, which are then never updated
    (kubernetes/kubernetes#111280).
    """
    hash, lost = hash_in(kept), {hash_in(revision) for revision in duplicates}
    relabel: list[Action] = [
        RelabelPod(
            Key(POD.group, POD.kind, pod.namespace, pod.name),
            pod.uid,
            hash,
            f"revision {kept.number} holds the same template",
        )
        for pod in pods
        if pod.hash in lost and pod.hash != hash
    ]
    why = f"revision {kept.number} ({kept.name}) holds the same template"
    going = [revision for revision in duplicates if not revision.deleting]
    return relabel + [
        DeleteRevision(_key(daemonset, revision.name), revision.uid, why) for revision in going
    ]


def _label(daemonset: DaemonSet, revision: Revision) -> LabelRevision:
    return LabelRevision(
        _key(daemonset, revision.name), revision.uid, revision.name, "it has no hash"
    )


def _age(revision: Revision) -> tuple[int, str]:
    return revision.number, revision.name


def _key(daemonset: DaemonSet, name: str) -> Key:
    return Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, daemonset.key.namespace, name)
