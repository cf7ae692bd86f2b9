"""Holds the rollouts of a commit that is put on hold while it rolls out, and releases its
templates; also those that stay on hold because their rollout was halted.

The commit is already applied, so the deployer can't skip it. The controller treats the template as
a halted one of its DaemonSet, and takes no further node until its release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops_ds import errors
from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import halted_templates, target_revisions
from gitops_ds.deployer import live_state
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, PatchType, Selection
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, Body, Key, key_of
from gitops_ds.model.rollouts.proven_templates import HaltedTemplate
from gitops_ds.model.values import replace


async def hold(cluster: Cluster, owner: str, commit: str, now: float) -> tuple[Key, ...]:
    """Holds the rollouts of a commit, and returns their DaemonSets; none if the account may not
    list them.

    `owner` is the id of the objects' owner, `now` in seconds since 1970. Raises ClusterError.
    """
    try:
        daemonsets = (await cluster.list(DAEMONSET)).items
    except errors.Forbidden:
        return ()
    rolling = {
        key_of(body): body
        for body in daemonsets
        if live_state.label(body) == owner
        and names.TARGET in (body["metadata"].get("annotations") or {})
    }
    if not rolling:
        return ()
    listed = await cluster.list(CONTROLLER_REVISION, Selection(labels=names.ROLLOUT))
    own_revisions = [one for one in map(revisions.revision_of, listed.items) if one is not None]
    held = []
    for key, body in rolling.items():
        annotations = body["metadata"]["annotations"]
        target = next((one for one in own_revisions if _is_target(one, key, annotations)), None)
        if target is None or not _commit(target).startswith(commit):
            continue
        hash = revisions.labels_of(target).get(names.ROLLOUT, "")
        others = (one for one in halted_templates.parse(annotations) if one.hash != hash)
        kept = (HaltedTemplate(hash, _commit(target), now, halted_templates.ON_HOLD), *others)
        patch = {"metadata": {"annotations": {names.HALTED: halted_templates.encoded(kept)}}}
        await cluster.patch(DAEMONSET, key.namespace, key.name, patch, type=PatchType.MERGE)
        held.append(key)
    return tuple(held)


def _is_target(revision: Revision, key: Key, annotations: dict[str, str]) -> bool:
    namespace = str((revision.raw.get("metadata") or {}).get("namespace") or "")
    return (namespace, revision.name) == (key.namespace, annotations.get(names.TARGET))


def _commit(target: Revision) -> str:
    annotations = revisions.annotations_of(target)
    return str(annotations.get(names.COMMIT) or "")


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
        if live_state.label(body) == owner and _annotations(body).get(names.HALTED)
    ]
    if not bodies:
        return ()
    which = Selection(labels=names.ROLLOUT)
    own_revisions = map(
        revisions.revision_of, (await cluster.list(CONTROLLER_REVISION, which)).items
    )
    targets = [one for one in own_revisions if one is not None]
    released = [key_of(body) for body in bodies if await _release(cluster, body, targets, commit)]
    return tuple(released)


async def _release(cluster: Cluster, body: Body, targets: Iterable[Revision], commit: str) -> bool:
    """Whether the DaemonSet had a template to release.

    The halt is removed first: otherwise the deployer would add it to the annotation again.
    """
    key, uid = key_of(body), str(body["metadata"]["uid"])
    own = [one for one in targets if (it := target_revisions.daemonset_of(one)) and it.uid == uid]
    hashes = halted_templates.named(_annotations(body), commit)
    hashes |= {
        _hash(one) for one in own if _annotations(one.raw).get(names.COMMIT, "").startswith(commit)
    }
    hashes_now = {one.hash for one in halted_templates.parse(_annotations(body))}
    if not hashes & hashes_now:
        return False
    for target in own:
        record = target_revisions.record_in(target)
        if _hash(target) in hashes and record.halt is not None:
            text = target_revisions.encoded(replace(record, halt=None))
            await _annotate(cluster, target.raw, {names.ROLLOUT_RECORD: text})
    left = halted_templates.without(_annotations(body), hashes)
    patch = {"metadata": {"annotations": {names.HALTED: left}}}
    await cluster.patch(DAEMONSET, key.namespace, key.name, patch, type=PatchType.MERGE)
    return True


async def _annotate(cluster: Cluster, revision: Body, annotations: Mapping[str, str]) -> None:
    key = key_of(revision)
    patch = {"metadata": {"uid": revision["metadata"]["uid"], "annotations": dict(annotations)}}
    await cluster.patch(CONTROLLER_REVISION, key.namespace, key.name, patch, type=PatchType.MERGE)


def _annotations(body: Body) -> Mapping[str, str]:
    return (body.get("metadata") or {}).get("annotations") or {}


def _hash(target: Revision) -> str:
    return revisions.labels_of(target).get(names.ROLLOUT, "")
