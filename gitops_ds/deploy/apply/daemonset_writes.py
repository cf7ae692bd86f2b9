"""What an apply states on DaemonSets, as it is announced to the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Key
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.deploy.apply.applier import AppliedObject
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.state import announced_daemonsets
from gitops_ds.rollouts.state.announced_daemonsets import DaemonSetWrite


def planned(draft: PlanDraft) -> Iterator[DaemonSetWrite]:
    """Those of the existing DaemonSets, also of unchanged ones: an earlier process may have ended
    after its write.
    """
    for change in draft.plan.changes:
        key, manifest, live = change.key, change.manifest, draft.inputs.live.objects
        if key.is_daemonset and manifest is not None and (body := live.get(key)) is not None:
            before = announced_daemonsets.stated_with(body, _revisions(draft, key))
            yield DaemonSetWrite(body["metadata"]["uid"], _wanted(draft, manifest), before)


def done(draft: PlanDraft, written: Iterable[AppliedObject]) -> Iterator[DaemonSetWrite]:
    """Those of the DaemonSets that were written."""
    for write in written:
        manifest, body = write.change.manifest, write.body
        if write.change.key.is_daemonset and manifest is not None and body is not None:
            yield DaemonSetWrite(body["metadata"]["uid"], _wanted(draft, manifest))


def _wanted(draft: PlanDraft, manifest: Manifest) -> Mapping[str, str]:
    """With the recorded template of the target; an earlier version recorded none."""
    stamp = object_owner.stamp_of(manifest, draft.inputs.context.stamp)
    body, history = object_owner.stamped(manifest, stamp), draft.histories.get(manifest.key)
    if history is not None and history.target is not None:
        return announced_daemonsets.stated_on(body, history.target.template)
    return announced_daemonsets.stated_with(body, _revisions(draft, manifest.key))


def _revisions(draft: PlanDraft, daemonset: Key) -> tuple[Revision, ...]:
    live = draft.inputs.live
    return (*live.targets.get(daemonset, ()), *live.revisions.get(daemonset, ()))
