"""Holds the rollouts of a commit that is put on hold while it rolls out.

The commit is already applied, so the deployer can't skip it. The controller treats the template as
a halted one of its DaemonSet, and takes no further node until its release.
"""

from __future__ import annotations

from gitops_ds import errors
from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import halted_templates
from gitops_ds.deployer import live_state
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, PatchType, Selection
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, Key, key_of
from gitops_ds.model.rollouts.proven_templates import HaltedTemplate


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
