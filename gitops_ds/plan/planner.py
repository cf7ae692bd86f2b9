"""The plan: what an apply would do, from what Git says and what the cluster holds. Pure, and the
same for every caller.

First `undecided` tells which objects the cluster should be asked about by a dry run; then `plan`
takes the answers. Without answers (an inventory file) our own defaulting says what would come out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gitops_ds.apimachinery import defaults
from gitops_ds.model import content_hash
from gitops_ds.model.bundle import Bundle, Manifest
from gitops_ds.model.change import Change, Drifted, Operation, Plan
from gitops_ds.model.impact import NodeImpact
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Body, Key
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.skipped import DriftPolicy, Skipped
from gitops_ds.plan import (
    allow_list,
    apply_order,
    approval,
    deletions,
    diff,
    drift,
    guard_limits,
    impersonation,
    ownership,
    predict,
    prune,
    rollout_impact,
    tracking_labels,
)
from gitops_ds.plan.deletions import Leaving
from gitops_ds.plan.guard_limits import Losses
from gitops_ds.plan.options import DryRunResult, FieldConflict, PlanContext
from gitops_ds.plan.ownership import Hold

NO_ANSWERS: Mapping[Key, DryRunResult] = {}


@dataclass(frozen=True, slots=True)
class _Judged:
    change: Change | None
    refusal: Skipped | None = None
    drifted: Drifted | None = None


def undecided(bundle: Bundle, live: Live, terms: PlanContext) -> tuple[Manifest, ...]:
    """The manifests whose object may be written and is not plainly as it shall be.

    What is not there need not be asked, unless somebody else is to make it, who perhaps may not.
    """

    def is_undecided(manifest: Manifest) -> bool:
        there = live.objects.get(manifest.key)
        if there is None:
            return (
                terms.impersonation is not None
                and _hindrance(manifest, bundle, None, terms) is None
            )
        if _is_contested(manifest, terms):
            return False
        return _hindrance(
            manifest, bundle, there, terms
        ) is None and not ownership.would_change_nothing(there, probe(manifest, there, terms))

    return tuple(manifest for manifest in bundle.manifests.values() if is_undecided(manifest))


def probe(manifest: Manifest, live: Body, terms: PlanContext) -> Body:
    """What to send as a dry run: the object with the commit that it already carries, so that only a
    real change shows.
    """
    return tracking_labels.stamped(manifest, tracking_labels.as_live(terms.stamp, live))


def may_force(
    manifest: Manifest, live: Body | None, conflicts: tuple[FieldConflict, ...], terms: PlanContext
) -> bool:
    """Whether a conflict may be won without asking.

    Drift is won where it is to be corrected. What a commit changes, or applies for the first time,
    wins over people at a terminal whatever is said of drift, but not over a controller.
    """
    if terms.force_conflicts:
        return True
    if drift.is_drift(manifest, terms):
        return drift.choice(manifest, live, terms) is DriftPolicy.CORRECT
    return all(ownership.is_person(conflict.manager) for conflict in conflicts)


def plan(
    bundle: Bundle,
    live: Live,
    terms: PlanContext,
    answers: Mapping[Key, DryRunResult] = NO_ANSWERS,
    *,
    kept: Collection[Key] | None = None,
) -> Plan:
    """Every object's change in the order of an apply, and what is refused; the hash names exactly
    this plan.

    `kept` are the objects that `undecided` found plainly as they shall be; None to find out here.
    """
    if kept is None:
        kept = bundle.manifests.keys() - {
            manifest.key for manifest in undecided(bundle, live, terms)
        }
    judged = [
        _judge(manifest, (bundle, live, terms), answers.get(key), plainly=key in kept)
        for key, manifest in bundle.manifests.items()
    ]
    changes = [one.change for one in judged if one.change]
    refused = [one.refusal for one in judged if one.refusal]
    drifted = {
        manifest: one.drifted
        for manifest, one in zip(bundle.manifests, judged, strict=True)
        if one.drifted
    }
    deletes = _deletes(
        bundle,
        live,
        terms,
        {change.key: change.nodes.lost for change in changes if _narrows(change, drifted)},
    )
    spared = {key for refusal in deletes.refusals for key in (refusal.key, *refusal.held)}
    changes += deletes.changes
    in_order = apply_order.ordered(changes, apply_order.waves(bundle.manifests.values()))
    left = tuple(change for change in in_order if change.key not in spared)
    return Plan(
        bundle.commit,
        bundle.cluster.name,
        left,
        (*refused, *bundle.refusals, *deletes.refusals, *guard_limits.unknown_nodes(left, live)),
        deletes.hash,
        drifted,
        deletes.agreed,
        tuple(change for change in in_order if change.key in spared & deletes.weighed),
    )


@dataclass(frozen=True, slots=True)
class _Deletes:
    """The deletes of a plan as if there were no guards, and what the guards say of them and of
    updates that take agents away.

    `agreed` may be deleted in later plans too; `weighed` is held back until the hash is approved.
    """

    changes: tuple[Change, ...]
    refusals: tuple[Skipped, ...]
    hash: str
    agreed: frozenset[Key]
    weighed: frozenset[Key]


def _deletes(
    bundle: Bundle, live: Live, terms: PlanContext, narrowed: Mapping[Key, tuple[str, ...]]
) -> _Deletes:
    found, refused = deletions.of(bundle, live, terms)
    collected = prune.collectable(found, live)
    content_named = prune.content_named(found, live)
    orphans = {key: one for key, one in found.items() if key not in content_named}
    in_use = deletions.in_use(orphans, bundle, live, terms)
    losses = guard_limits.Losses(
        orphans, narrowed, in_use, empty=not (bundle.manifests or bundle.kept)
    )
    hash = _hash(bundle, terms, {**orphans, **{key: found[key] for key in collected}}, losses)
    guarded = guard_limits.refusals(losses, live, terms, hash)
    spared = {key for refusal in guarded for key in (refusal.key, *refusal.held)}
    doomed = [
        key for key in orphans if key not in spared and not prune.is_ending(live.objects[key])
    ]
    changes = [
        Change(Operation.DELETE, key, None, nodes=NodeImpact(lost=orphans[key].lost))
        for key in orphans
    ]
    changes = [change for change in changes if not prune.is_ending(live.objects[change.key])]
    changes += [Change(Operation.DELETE, key, None) for key in collected]
    agreed = terms.condemned & orphans.keys()
    if approval.covers(terms.approved, hash):
        agreed = frozenset(
            key
            for key in doomed
            if not guard_limits.is_for_one_approval(key, orphans[key], orphans)
        )
    held_back = frozenset(
        key
        for refusal in guarded
        if refusal.reason.effect.approvable
        for key in (refusal.key, *refusal.held)
        if key
    )
    return _Deletes(tuple(changes), (*refused, *guarded), hash, agreed, held_back)


def _narrows(change: Change, drifted: Mapping[Key, Drifted]) -> bool:
    """Whether an update takes agents from nodes. One that corrects drift does what a commit did
    that was applied before.
    """
    return (
        change.operation is Operation.UPDATE
        and bool(change.nodes.lost)
        and change.key not in drifted
    )


def _judge(
    manifest: Manifest,
    seen: tuple[Bundle, Live, PlanContext],
    answer: DryRunResult | None,
    *,
    plainly: bool,
) -> _Judged:
    """One object's change; `plainly`: it is as it shall be, if it is there at all."""
    bundle, live, terms = seen
    key, old = manifest.key, live.objects.get(manifest.key)
    if hindrance := _hindrance(manifest, bundle, old, terms):
        return _Judged(None, hindrance)
    if old is None:
        return _judge_missing(manifest, live, terms, answer)
    if answer is not None and answer.refused:
        return _Judged(
            None,
            Skipped(SkipReason.REFUSED, f"{key}: the API server refuses it: {answer.refused}", key),
        )
    if answer is not None and answer.conflicts:
        return _Judged(None, conflict(key, answer.conflicts))
    if plainly and not _is_contested(manifest, terms):  # nobody was asked about what is contested
        return _Judged(_change(Operation.KEEP, manifest, old, old, live))
    wanted = probe(manifest, old, terms)
    if answer is not None and answer.body is not None:
        # kubectl's create owns fields that were defaults: taken away, they come back by default.
        new = defaults.defaulted(ownership.without_abandoned(old, wanted, answer.body))
    else:
        new = predict.applied(old, wanted)
    if (
        answer is not None
        and answer.body is not None
        and _unchanged(old, answer.body)
        and not diff.compare(old, new)
    ):
        return _Judged(_change(Operation.KEEP, manifest, old, old, live))
    differing = diff.compare(old, new)
    if not differing and _is_contested(manifest, terms):
        return _Judged(_change(Operation.KEEP, manifest, old, old, live))
    if all(map(drift.is_own, differing)) or not drift.is_drift(manifest, terms):
        return _Judged(_change(Operation.UPDATE, manifest, old, new, live))
    found = drift.found(
        old, differing, live.revisions.get(key, ()), drift.choice(manifest, old, terms)
    )
    if found.choice is DriftPolicy.CORRECT and _is_contested(manifest, terms):
        found = drift.contested(found)
        return _Judged(Change(Operation.KEEP, key, manifest), _contested(key, found), found)
    if found.choice is DriftPolicy.CORRECT:
        return _Judged(_change(Operation.UPDATE, manifest, old, new, live), drifted=found)
    # Its template is no commit's: no revision is said of it.
    return _Judged(Change(Operation.KEEP, key, manifest), _drifted(key, found, terms), found)


def _judge_missing(
    manifest: Manifest, live: Live, terms: PlanContext, answer: DryRunResult | None
) -> _Judged:
    """The change for an object that is not in the cluster."""
    key = manifest.key
    if drift.is_left(manifest, None, terms):
        gone = drift.gone(drift.choice(manifest, None, terms))
        return _Judged(Change(Operation.KEEP, key, manifest), _drifted(key, gone, terms), gone)
    if answer is not None and answer.refused:
        return _Judged(
            None,
            Skipped(SkipReason.REFUSED, f"{key}: the API server refuses it: {answer.refused}", key),
        )
    if _is_contested(manifest, terms):
        gone = drift.contested(drift.gone(DriftPolicy.CORRECT))
        return _Judged(Change(Operation.KEEP, key, manifest), _contested(key, gone), gone)
    new: Body = defaults.defaulted(
        tracking_labels.stamped(manifest, tracking_labels.of(manifest, terms.stamp))
    )
    deleted = drift.gone(DriftPolicy.CORRECT) if drift.is_drift(manifest, terms) else None
    return _Judged(_change(Operation.CREATE, manifest, None, new, live), drifted=deleted)


def _hindrance(
    manifest: Manifest, bundle: Bundle, old: Body | None, terms: PlanContext
) -> Skipped | None:
    key = manifest.key
    if (
        refusal := terms.deferred.get(key)
        or allow_list.why_not(key, terms.allowed)
        or impersonation.why_not(manifest, terms.impersonation)
    ):
        return refusal
    if first := terms.neighbours.ahead.get(key):
        return Skipped(
            SkipReason.NAMED_IN_GIT,
            f"{key} is named in Git too (owner {first}), which wins: name it in one place only",
            key,
        )
    if manifest.agent and manifest.agent in bundle.held:
        return Skipped(
            SkipReason.HELD, f"{key} is held by hold: true in {bundle.held[manifest.agent]}", key
        )
    if (
        old is not None
        and manifest.holder
        and (
            refusal := deletions.quarantined(
                key, old, bundle, by=deletions.source_of(manifest.origin.base.file)
            )
        )
    ):
        return refusal
    if old is not None and prune.is_ending(old):
        return Skipped(
            SkipReason.WAITS, f"{key} is being deleted: it is made anew when it is gone", key
        )
    if old is None or terms.adopt:
        return None
    holder = ownership.holder(old, terms.stamp.owner)
    if holder.hold is Hold.FOREIGN and ownership.owner_of(old) not in terms.neighbours.behind:
        return Skipped(
            SkipReason.OWNED_BY_OTHER,
            f"{key} belongs to {holder.name}: take it away there first, or take it over with "
            "--adopt",
            key,
        )
    return None


def _change(
    operation: Operation, manifest: Manifest, old: Body | None, new: Body, live: Live
) -> Change:
    differences = (
        diff.compare(old, new) if operation is Operation.UPDATE and old is not None else ()
    )
    if manifest.key.kind != "DaemonSet" or manifest.key.group != "apps":
        return Change(operation, manifest.key, manifest, differences)
    rollout = rollout_impact.rollout(old, new, live.revisions.get(manifest.key, ()))
    if operation is Operation.KEEP:
        return Change(operation, manifest.key, manifest, rollout=rollout)
    foresee = live.foresee.get(manifest.key)
    impact = (
        foresee(new)
        if foresee
        else rollout_impact.impact(old, new, live.nodes or (), rolls=rollout.rolls)
    )
    return Change(operation, manifest.key, manifest, differences, rollout, impact)


def moving(plan: Plan) -> tuple[Key, ...]:
    """DaemonSets that change in a way that may move pods: worth a look at the pods that they have."""
    updates = [
        change
        for change in plan.writes
        if change.operation is Operation.UPDATE and change.key.is_daemonset
    ]
    return tuple(
        change.key
        for change in updates
        if any(field.path[:1] == ("spec",) for field in change.fields)
    )


def conflict(key: Key, conflicts: tuple[FieldConflict, ...]) -> Skipped:
    """Which fields others own, and what to do about it."""
    told = "; ".join(f"{conflict.field} is owned by {conflict.manager}" for conflict in conflicts)
    return Skipped(
        SkipReason.CONFLICT,
        f"{key}: {told}. Take the field out of Git, or force it with --force-conflicts",
        key,
    )


def _is_contested(manifest: Manifest, terms: PlanContext) -> bool:
    return manifest.key in terms.contested and drift.is_drift(manifest, terms)


def _contested(key: Key, drifted: Drifted) -> Skipped:
    told = (
        f"{key} was {drift.words(drifted)}; that comes back after each correction, so the next "
        "one waits"
    )
    return Skipped(
        SkipReason.CONTESTED,
        f"{told}. Stop the other writer, or leave the field to it (apply.ignore)",
        key,
    )


def _drifted(key: Key, drifted: Drifted, terms: PlanContext) -> Skipped:
    left = terms.left.get(key)
    since = terms.now if left is None or left.choice is not DriftPolicy.HOLD else left.since
    hours = (since + terms.hold_for - terms.now) / 3600
    until = f", for {hours:.1f} hours more" if drifted.choice is DriftPolicy.HOLD else ""
    message = (
        f"{key} was {drift.words(drifted)}; it is left so{until}: drift is set to {drifted.choice}"
    )
    return Skipped(SkipReason.DRIFT, message, key)


def _unchanged(old: Body, answer: Body) -> bool:
    """Whether a dry run would write nothing at all: not even who owns a field."""

    def owners(body: Body) -> list[Mapping[str, object]]:
        return [
            {k: v for k, v in entry.items() if k != "time"}
            for entry in body["metadata"].get("managedFields") or ()
        ]

    return not diff.compare(old, answer) and owners(old) == owners(answer)


def _hash(bundle: Bundle, terms: PlanContext, found: Mapping[Key, Leaving], losses: Losses) -> str:
    """Names what comes of the plan, so that it stays the same while the plan is carried out, and
    over commits elsewhere.
    """
    told = [[str(key), manifest.digest] for key, manifest in sorted(bundle.manifests.items())]
    gone = [
        [
            str(key),
            one.policy.value,
            *(str(other) for other in one.takes if other not in found),
            *one.unlisted,
        ]
        for key, one in sorted(found.items())
    ]
    return approval.hash_of(
        content_hash.digest([bundle.cluster.name, terms.stamp.owner, told, gone])[:16],
        len(losses.nodes),
    )
