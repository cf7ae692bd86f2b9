"""The change of one object in a plan, by a dry run or without one by a prediction. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.core.change import Change, Drifted, Operation
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Body
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.deploy.plan import added_fields, drift, refusals, rollout_impact
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import diff, object_owner, ownership, refused_writes
from gitops_ds.ownership.field_managers import NO_FIELDS, Fields
from gitops_ds.ownership.options import DryRunResult, PlanContext


class ObjectOutcome(msgspec.Struct, frozen=True):
    """The change of one object, the reason to skip it, and its drift."""

    change: Change | None
    refusal: Skipped | None = None
    drifted: Drifted | None = None


def probe(manifest: Manifest, live: Body, context: PlanContext) -> Body:
    """The body of a dry run: the object with the commit of the live one, so that only a real change
    differs.
    """
    return object_owner.stamped(manifest, object_owner.stamp_of_live(context.stamp, live))


class ObjectPlanner(msgspec.Struct, frozen=True):
    """Plans single objects of a commit for a cluster."""

    bundle: Bundle
    live: Live
    context: PlanContext

    def is_undecided(self, manifest: Manifest) -> bool:
        """Whether a dry run must decide: the object may be written and may differ.

        A missing object needs no dry run, unless an impersonated account creates it, which may
        lack the permission.
        """
        old = self.live.objects.get(manifest.key)
        if old is None:
            return (
                self.context.options.impersonation is not None and self._refusal(manifest) is None
            )
        return (
            not drift.is_contested(manifest, self.context)
            and self._refusal(manifest) is None
            and not self._is_in_sync(manifest, old)
        )

    def _is_in_sync(self, manifest: Manifest, old: Body) -> bool:
        desired = probe(manifest, old, self.context)
        return ownership.would_change_nothing(old, desired) and not self._added(manifest, old)

    def _added(self, manifest: Manifest, old: Body) -> Fields:
        return added_fields.of(manifest, old, self.context)

    def outcome(
        self, manifest: Manifest, answer: DryRunResult | None, *, in_sync: bool
    ) -> ObjectOutcome:
        """The outcome for an object; `in_sync` if it exists and equals the manifest."""
        if refusal := self._refusal(manifest):
            return ObjectOutcome(None, refusal)
        old = self.live.objects.get(manifest.key)
        if old is None:
            return self._missing(manifest, answer)
        if answer is not None and answer.refused:
            return ObjectOutcome(None, refused_writes.rejected(manifest.key, answer.refused))
        if answer is not None and answer.conflicts:
            return ObjectOutcome(None, refused_writes.conflict(manifest.key, answer.conflicts))
        if in_sync and not drift.is_contested(manifest, self.context):  # contested: had no dry run
            return self._kept(manifest, old)
        return self._existing(manifest, old, answer.body if answer is not None else None)

    def _refusal(self, manifest: Manifest) -> Skipped | None:
        old = self.live.objects.get(manifest.key)
        return refusals.refusal(manifest, self.bundle, old, self.context)

    def _existing(self, manifest: Manifest, old: Body, dry_run: Body | None) -> ObjectOutcome:
        desired, added = probe(manifest, old, self.context), self._added(manifest, old)
        if dry_run is not None:
            # kubectl's create owns fields that were defaults: removed, they return by default.
            kept = ownership.without_abandoned(old, desired, dry_run, added)
            new = defaults.defaulted(diff.in_order(kept, desired))
        else:
            new = predicted(old, desired, added)
        differing = diff.compare(old, new)
        if not differing and (
            drift.is_contested(manifest, self.context)
            or (dry_run is not None and _unchanged(old, dry_run))
        ):
            return self._kept(manifest, old)
        if all(map(drift.is_own, differing)) or not drift.is_drift(manifest, self.context):
            return ObjectOutcome(self._change(Operation.UPDATE, manifest, old, new))
        choice = drift.choice(manifest, old, self.context)
        revisions = self.live.revisions.get(manifest.key, ())
        drifted = drift.of_fields(old, differing, revisions, choice)
        if choice is not DriftPolicy.CORRECT:
            return self._uncorrected(manifest, drifted)
        if drift.is_contested(manifest, self.context):
            return _contested(manifest, drifted)
        return ObjectOutcome(self._change(Operation.UPDATE, manifest, old, new), drifted=drifted)

    def _missing(self, manifest: Manifest, answer: DryRunResult | None) -> ObjectOutcome:
        context = self.context
        if drift.is_left(manifest, None, context):
            return self._uncorrected(manifest, drift.gone(drift.choice(manifest, None, context)))
        if answer is not None and answer.refused:
            return ObjectOutcome(None, refused_writes.rejected(manifest.key, answer.refused))
        if drift.is_contested(manifest, context):
            return _contested(manifest, drift.gone(DriftPolicy.CORRECT))
        new: Body = defaults.defaulted(
            object_owner.stamped(manifest, object_owner.stamp_of(manifest, context.stamp))
        )
        deleted = drift.gone(DriftPolicy.CORRECT) if drift.is_drift(manifest, context) else None
        return ObjectOutcome(self._change(Operation.CREATE, manifest, None, new), drifted=deleted)

    def _kept(self, manifest: Manifest, old: Body) -> ObjectOutcome:
        return ObjectOutcome(self._change(Operation.KEEP, manifest, old, old))

    def _uncorrected(self, manifest: Manifest, drifted: Drifted) -> ObjectOutcome:
        # The live template is not that of any commit: the change has no revision.
        skipped = refusals.uncorrected(manifest.key, drifted, self.context)
        return ObjectOutcome(Change(Operation.KEEP, manifest.key, manifest), skipped, drifted)

    def _change(
        self, operation: Operation, manifest: Manifest, old: Body | None, new: Body
    ) -> Change:
        key, live = manifest.key, self.live
        updated = old if operation is Operation.UPDATE else None
        differences = () if updated is None else diff.compare(updated, new)
        if not key.is_daemonset:
            return Change(operation, key, manifest, differences)
        rollout = rollout_impact.rollout(old, new, live.revisions.get(key, ()))
        if operation is Operation.KEEP:
            return Change(operation, key, manifest, rollout=rollout)
        foresee = live.foresee.get(key)
        impact = (
            foresee(new)
            if foresee
            else rollout_impact.impact(old, new, live.nodes or (), rolls=rollout.rolls)
        )
        impact = rollout_impact.with_waiting(impact, old, new, live.nodes or ())
        costs = rollout_impact.costs(old, new, live.nodes)
        return Change(operation, key, manifest, differences, rollout, impact, costs=costs)


def _contested(manifest: Manifest, drifted: Drifted) -> ObjectOutcome:
    marked = drift.contested(drifted)
    skipped = refusals.contested(manifest.key, marked)
    return ObjectOutcome(Change(Operation.KEEP, manifest.key, manifest), skipped, marked)


def _unchanged(old: Body, answer: Body) -> bool:
    """Whether a dry run would write nothing, not even the owner of a field."""

    def owners(body: Body) -> list[Mapping[str, object]]:
        return [
            {k: v for k, v in entry.items() if k != "time"}
            for entry in body["metadata"].get("managedFields") or ()
        ]

    return not diff.compare(old, answer) and owners(old) == owners(answer)


def predicted(live: Body, desired: Body, added: Fields = NO_FIELDS) -> dict[str, Any]:
    """The live object after a server-side apply of `desired` that wins every conflict, without a
    request: for cluster snapshots, and if no dry run is available. `added` fields are taken back.
    """
    left = ownership.without_abandoned(live, desired, live, added)
    return defaults.defaulted(_overlay(left, defaults.defaulted(desired), desired))


def lost_empty(written: Body, desired: Body) -> bool:
    """Whether an apply removed a mapping that became empty (`affinity: {}`) instead of its content.

    The next apply adds it: a correction of drift without a drift, and a second rollout.
    """
    return any(
        change.new == {} and change.old is None
        for change in diff.compare(written, predicted(written, desired))
    )


def _overlay(live: Any, stored: Any, desired: Any) -> Any:
    """`stored` over `live`; a live value takes precedence over a default."""
    if isinstance(live, Mapping) and isinstance(stored, Mapping) and isinstance(desired, Mapping):
        both = {**live}
        for key, value in stored.items():
            if key in desired:
                both[key] = _overlay(live.get(key), value, desired[key]) if key in live else value
            else:
                both.setdefault(key, value)
        return both
    return stored
