"""The reasons why a plan skips an object, with the advice for the user. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops_ds.core import names, stated_reasons
from gitops_ds.core.change import Change, Drifted, Operation
from gitops_ds.core.objects import Body, Key, annotations_of
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped, SkipReason
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.deploy.plan import deletions, drift
from gitops_ds.ownership import field_managers, object_owner, permissions, refused_writes
from gitops_ds.ownership.object_owner import Hold
from gitops_ds.ownership.options import PlanContext


def refusal(
    manifest: Manifest, bundle: Bundle, old: Body | None, context: PlanContext
) -> Skipped | None:
    """Why the object must not be written, as known before any dry run; `old` is the live object."""
    return (
        context.options.deferred.get(manifest.key)
        or permissions.not_allowed(
            manifest.key, context.options.allowed, manifest.body, *([] if old is None else [old])
        )
        or permissions.not_requirable(manifest, context.options.allowed)
        or permissions.not_appliable(manifest, context.options.impersonation)
        or _in_source(manifest, bundle, context)
        or (
            None
            if old and manifest.agent in bundle.rollouts
            else refused_writes.on_hold(manifest, context)
        )
        or (None if old is None else _in_cluster(manifest, bundle, old, context))
    )


def _in_source(manifest: Manifest, bundle: Bundle, context: PlanContext) -> Skipped | None:
    key = manifest.key
    if first := context.options.other_owners.ahead.get(key):
        return Skipped(
            SkipReason.NAMED_IN_GIT,
            f"{key} is in Git too (owner {first}), which takes precedence: keep it in one place",
            key,
        )
    if manifest.agent and manifest.agent in bundle.held:
        return Skipped(
            SkipReason.HELD, f"{key} is on hold by hold: true in {bundle.held[manifest.agent]}", key
        )
    return None


def _in_cluster(
    manifest: Manifest, bundle: Bundle, old: Body, context: PlanContext
) -> Skipped | None:
    key = manifest.key
    if manifest.holder:
        source = deletions.source_of(manifest.origin.base.file)
        if quarantined := deletions.quarantined(key, old, bundle, by=source):
            return quarantined
    if deletions.is_ending(old):
        return Skipped(
            SkipReason.WAITS, f"{key} is being deleted: it is created again afterwards", key
        )
    if context.options.adopt:
        return None
    holder, owner = object_owner.holder(old, context.stamp.owner), object_owner.owner_of(old)
    if holder.hold is Hold.FOREIGN and owner not in context.options.other_owners.behind:
        return Skipped(
            SkipReason.OWNED_BY_OTHER,
            f"{key} belongs to {context.owners.get(owner, holder.name)}: remove it there first, or "
            "take it over with `gitops-ds apply --adopt`",
            key,
        )
    return None


def unlisted(key: Key, reason: str) -> Skipped:
    """The API server refuses the lists of the object's kind."""
    return Skipped(SkipReason.REFUSED, f"{key} can't be read: {reason}", key)


def contested(key: Key, drifted: Drifted) -> Skipped:
    """The drift of the object returns after each correction."""
    return Skipped(
        SkipReason.CONTESTED,
        f"{key} was {drift.words(drifted)}; the change returns after each correction, so the next "
        "correction is delayed. Stop the other writer, or leave the field to it (apply.ignore)",
        key,
    )


def uncorrected(key: Key, drifted: Drifted, context: PlanContext) -> Skipped:
    """The drift policy of the object forbids a correction now."""
    left = context.state.drift.get(key)
    since = context.now if left is None or left.choice is not DriftPolicy.HOLD else left.since
    hours = (since + context.options.hold_for - context.now) / 3600
    until = f", for {hours:.1f} hours more" if drifted.choice is DriftPolicy.HOLD else ""
    return Skipped(
        SkipReason.DRIFT,
        f"{key} was {drift.words(drifted)}; it is not corrected{until}: "
        f"drift is set to {drifted.choice}",
        key,
    )


def of_suspended(
    changes: Iterable[Change], live: Mapping[Key, Body], *, live_annotations: bool = True
) -> tuple[Skipped, ...]:
    """The skipped changes, each with its key: those of a suspended DaemonSet, and those of its
    agent.

    It has the annotation `gitops-ds.io/suspend: "true"` on the live object. If that came from Git,
    a commit without it is applied; a commit that adds it is the last one that is applied to the
    agent. Without `live_annotations`, only annotations from a commit count.
    """
    changes = tuple(changes)
    agents: dict[str, Key] = {}
    keys: set[Key] = set()
    for change in changes:
        if change.key.kind == "DaemonSet" and _suspended(
            change, live.get(change.key), live_annotations=live_annotations
        ):
            keys.add(change.key)
            if change.manifest is not None and change.manifest.agent:
                agents[change.manifest.agent] = change.key
    refused = []
    for change in changes:
        by = (
            change.key
            if change.key in keys
            else agents.get(change.manifest.agent if change.manifest else "")
        )
        if by is not None and change.operation is not Operation.KEEP:
            word = f"{change.key} is unchanged: {'it' if by == change.key else by} is suspended"
            words = f"{word} (`gitops-ds resume {by.name}`)"
            stated = str(annotations_of(live[by]).get(names.SUSPEND_REASON) or "")
            message = stated_reasons.after(words, stated)
            refused.append(Skipped(SkipReason.SUSPENDED, message, change.key))
    return tuple(refused)


def _suspended(change: Change, live: Body | None, *, live_annotations: bool) -> bool:
    if live is None or _annotation(live) != "true":
        return False
    if not live_annotations and not field_managers.is_from_git(live, names.SUSPEND):
        return False
    taken_back = change.manifest is not None and _annotation(change.manifest.body) != "true"
    return not (taken_back and field_managers.is_from_git(live, names.SUSPEND))


def _annotation(body: Body) -> str:
    return str(annotations_of(body).get(names.SUSPEND) or "").lower()
