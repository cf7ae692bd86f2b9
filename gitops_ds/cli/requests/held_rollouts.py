"""The rollouts of a commit, put on hold and released: an annotation of their DaemonSets.

A commit that is put on hold while it rolls out is already applied, so the deployer can't skip it:
its rollouts are held. The controller treats the template as a halted one of its DaemonSet, and
takes no further node until its release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster, PatchType, Selection
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    Body,
    Key,
    annotations_of,
    key_of,
    short,
)
from gitops_ds.core.rollouts.proven_templates import HaltedTemplate, StopKind
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.state import daemonset_statements, halted_templates, target_revisions


class HeldRollouts(msgspec.Struct, frozen=True):
    """The DaemonSets whose rollouts are on hold now, and the commits of the other rollouts in
    progress.
    """

    held: tuple[Key, ...] = ()
    others: Mapping[Key, str] = msgspec.field(default_factory=dict)

    @property
    def words(self) -> str:
        """The end of the message of `hold`."""
        if self.held:
            return f", and its rollout of {', '.join(map(str, self.held))}"
        if not self.others:
            return ""
        some = ", ".join(f"{key} of {short(commit)}" for key, commit in self.others.items())
        return f"; no rollout in progress is of this commit: hold one of these ({some})"


async def hold(
    cluster: Cluster, owner: str, commit: str, now: float, reason: str = ""
) -> HeldRollouts:
    """Holds the rollouts of the templates that a commit gave, also together with others; none if
    the account may not list them.

    `owner` is the id of the objects' owner, `now` in seconds since 1970. Raises ClusterError.
    """
    try:
        daemonsets = (await cluster.list(DAEMONSET)).items
    except errors.Forbidden:
        return HeldRollouts()
    rolling = {
        key_of(body): body
        for body in daemonsets
        if object_owner.owner_of(body) == owner
        and daemonset_statements.has_target(annotations_of(body))
    }
    if not rolling:
        return HeldRollouts()
    listed = await cluster.list(CONTROLLER_REVISION, Selection(labels=names.ROLLOUT))
    own_revisions = [
        revision for revision in map(revisions.revision_of, listed.items) if revision is not None
    ]
    held, others_rolling = list[Key](), dict[Key, str]()
    for key, body in rolling.items():
        annotations = body["metadata"]["annotations"]
        target = next(
            (revision for revision in own_revisions if _is_target(revision, key, annotations)), None
        )
        commits = target_revisions.commits_of(target) if target is not None else ()
        if target is None or not any(known.startswith(commit) for known in commits):
            others_rolling |= {key: commits[0]} if commits else {}
            continue
        hash = revisions.labels_of(target).get(names.ROLLOUT, "")
        others = (
            template for template in halted_templates.parse(annotations) if template.hash != hash
        )
        on_hold = HaltedTemplate(
            hash,
            commits[0],
            now,
            halted_templates.ON_HOLD,
            commits=commits if len(commits) > 1 else (),
            kind=StopKind.HOLD,
            reason=reason,
        )
        patch = halted_templates.patch(halted_templates.encoded((on_hold, *others)))
        await cluster.patch(DAEMONSET, key.namespace, key.name, patch, type=PatchType.MERGE)
        held.append(key)
    return HeldRollouts(tuple(held), others_rolling)


def _is_target(revision: Revision, key: Key, annotations: dict[str, str]) -> bool:
    namespace = str((revision.raw.get("metadata") or {}).get("namespace") or "")
    target = daemonset_statements.target_name(annotations)
    return (namespace, revision.name) == (key.namespace, target)


async def release(cluster: Cluster, owner: str, commit: str) -> tuple[Key, ...]:
    """Releases the halted templates of a commit, and its halted or held rollouts.

    `owner` is the id of the objects' owner. Returns the DaemonSets; none if the account may not
    list them. Raises ClusterError.
    """
    try:
        daemonsets = (await cluster.list(DAEMONSET)).items
    except errors.Forbidden:
        return ()
    bodies = [
        body
        for body in daemonsets
        if object_owner.owner_of(body) == owner and halted_templates.is_stated(annotations_of(body))
    ]
    if not bodies:
        return ()
    which = Selection(labels=names.ROLLOUT)
    own_revisions = map(
        revisions.revision_of, (await cluster.list(CONTROLLER_REVISION, which)).items
    )
    targets = [revision for revision in own_revisions if revision is not None]
    released = [key_of(body) for body in bodies if await _release(cluster, body, targets, commit)]
    return tuple(released)


async def _release(cluster: Cluster, body: Body, targets: Iterable[Revision], commit: str) -> bool:
    """Whether the DaemonSet had a template to release.

    The halt is removed first: otherwise the deployer would add it to the annotation again.
    """
    key, uid = key_of(body), str(body["metadata"]["uid"])
    own = [
        revision
        for revision in targets
        if (it := target_revisions.daemonset_of(revision)) and it.uid == uid
    ]
    hashes = halted_templates.named(annotations_of(body), commit)
    hashes |= {
        _hash(revision)
        for revision in own
        if any(known.startswith(commit) for known in target_revisions.commits_of(revision))
    }
    hashes_now = {template.hash for template in halted_templates.parse(annotations_of(body))}
    if not hashes & hashes_now:
        return False
    for target in own:
        record = target_revisions.record_in(target)
        if _hash(target) in hashes and record.halt is not None:
            await _record(cluster, target, replace(record, halt=None))
    patch = halted_templates.patch(halted_templates.without(annotations_of(body), hashes))
    await cluster.patch(DAEMONSET, key.namespace, key.name, patch, type=PatchType.MERGE)
    return True


async def _record(cluster: Cluster, target: Revision, record: RolloutRecord) -> None:
    key, patch = key_of(target.raw), target_revisions.record_patch(target, record)
    await cluster.patch(CONTROLLER_REVISION, key.namespace, key.name, patch, type=PatchType.MERGE)


def _hash(target: Revision) -> str:
    return revisions.labels_of(target).get(names.ROLLOUT, "")
