"""The halted rollouts among the live objects of a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CommitId, Digest
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.model.rollouts.halted_rollout import HaltedRollout
from gitops_ds.model.sources.bundle import Bundle, Manifest
from gitops_ds.plan.rollouts import staging


def halted(bundle: Bundle, live: Live) -> Iterator[HaltedRollout]:
    """The halted rollouts of templates that the bundle has.

    A template from an object of the cluster has no commit, and a halted rollout of it is not
    listed.
    """
    for manifest in staging.with_policy(bundle):
        target = staging.known_target(manifest, live)
        halt = target_revisions.record_in(target).halt if target else None
        if target is None or halt is None or manifest.holder is not None:
            continue
        annotations = revisions.annotations_of(target)
        old = live.objects.get(manifest.key) or {}
        policy = rollout_policy.decode(bundle.rollouts[manifest.agent])
        yield HaltedRollout(
            daemonset=manifest.key,
            uid=str((old.get("metadata") or {}).get("uid") or ""),
            commit=CommitId(str(annotations.get(names.COMMIT) or "")),
            since=str(annotations.get(names.SINCE) or ""),
            template=Digest(staging.template_digest(manifest)),
            files=files_of(manifest),
            halt=halt,
            revert=policy.on_failure.revert,
            cluster=bundle.cluster.name,
        )


def files_of(manifest: Manifest) -> frozenset[str]:
    """The files that a manifest is rendered from, and the agent's folder."""
    origin = manifest.origin
    pointers = [origin.base, *(one for some in origin.set_by.values() for one in some)]
    files = {pointer.file for pointer in pointers}
    base = PurePosixPath(origin.base.file)
    if base.parts[0] == "agents" and len(base.parts) > 2:
        files.add(PurePosixPath(*base.parts[:2]).as_posix())
    return frozenset(files)
