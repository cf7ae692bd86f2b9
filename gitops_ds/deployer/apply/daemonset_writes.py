"""The annotations for rollouts that an apply gives to DaemonSets, as they are announced to the
controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gitops_ds.apimachinery.rollouts import attested_records
from gitops_ds.apimachinery.rollouts.attested_records import DaemonSetWrite
from gitops_ds.deployer.apply.applier import AppliedObject
from gitops_ds.deployer.apply.prepared_plan import PreparedPlan
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import Key, annotations_of
from gitops_ds.model.sources.bundle import Manifest


def planned(prepared: PreparedPlan) -> Iterator[DaemonSetWrite]:
    """Those of the existing DaemonSets, also of unchanged ones: an earlier process may have ended
    after its write.
    """
    for change in prepared.plan.changes:
        key, manifest, live = change.key, change.manifest, prepared.inputs.live.objects
        if key.is_daemonset and manifest is not None and (body := live.get(key)) is not None:
            before = attested_records.with_target_of(
                annotations_of(body), _revisions(prepared, key)
            )
            yield DaemonSetWrite(body["metadata"]["uid"], _wanted(prepared, manifest), before)


def done(prepared: PreparedPlan, written: Iterable[AppliedObject]) -> Iterator[DaemonSetWrite]:
    """Those of the DaemonSets that were written."""
    for one in written:
        manifest, body = one.change.manifest, one.body
        if one.change.key.is_daemonset and manifest is not None and body is not None:
            yield DaemonSetWrite(body["metadata"]["uid"], _wanted(prepared, manifest))


def _wanted(prepared: PreparedPlan, manifest: Manifest) -> Mapping[str, str]:
    """With the recorded template of the target; an earlier version recorded none."""
    annotations, history = annotations_of(manifest.body), prepared.histories.get(manifest.key)
    if history is not None and history.target is not None:
        return attested_records.with_target(annotations, history.target.template)
    return attested_records.with_target_of(annotations, _revisions(prepared, manifest.key))


def _revisions(prepared: PreparedPlan, daemonset: Key) -> tuple[Revision, ...]:
    live = prepared.inputs.live
    return (*live.targets.get(daemonset, ()), *live.revisions.get(daemonset, ()))
