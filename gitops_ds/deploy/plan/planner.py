"""The plan: the changes of an apply, from a commit and the state of the cluster. Pure, and the
same for every caller.

`undecided` returns the objects that need a dry run, and `plan` takes its results. Without results
(a cluster snapshot) our own defaulting predicts them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from gitops_ds.core.change import Change, Cost, Drifted, FieldChange, Operation, Plan
from gitops_ds.core.live import Live, NodeImpact
from gitops_ds.core.objects import CONTROLLER_REVISION, Body, Key, digest_of
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import (
    apply_order,
    deletions,
    drift,
    guard_limits,
    rollout_impact,
    rollout_uses,
)
from gitops_ds.deploy.plan.deletions import Leaving
from gitops_ds.deploy.plan.guard_limits import Losses
from gitops_ds.deploy.plan.object_changes import ObjectPlanner
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.ownership import diff, field_managers
from gitops_ds.ownership.options import NO_ANSWERS, DryRunResult, FieldConflict, PlanContext
from gitops_ds.rollouts.staging import targets
from gitops_ds.rollouts.state import target_revisions


def undecided(bundle: Bundle, live: Live, context: PlanContext) -> tuple[Manifest, ...]:
    """The manifests whose object may be written and may differ: a dry run decides."""
    planner = ObjectPlanner(bundle, live, context)
    return tuple(
        manifest for manifest in bundle.manifests.values() if planner.is_undecided(manifest)
    )


def may_force(
    manifest: Manifest,
    live: Body | None,
    conflicts: tuple[FieldConflict, ...],
    context: PlanContext,
) -> bool:
    """Whether an apply may force a conflict.

    Drift is forced if it must be corrected. A changed manifest of an object that was applied before
    takes its fields from everyone, regardless of the drift policy: who writes the object chooses
    the name of the manager, and would keep each later commit from it. A new manifest takes fields
    from users of kubectl, but not from a controller.
    """
    if context.options.force_conflicts:
        return True
    if drift.is_drift(manifest, context):
        return drift.choice(manifest, live, context) is DriftPolicy.CORRECT
    if manifest.key in context.state.digests:
        return True
    return all(field_managers.is_person(conflict.manager) for conflict in conflicts)


def plan(
    bundle: Bundle,
    live: Live,
    context: PlanContext,
    answers: Mapping[Key, DryRunResult] = NO_ANSWERS,
    *,
    kept: Collection[Key] | None = None,
) -> Plan:
    """Every object's change in the order of an apply, and the skipped objects; the hash identifies
    exactly this plan.

    `kept` are the objects that `undecided` found in sync; None to determine them here.
    """
    if kept is None:
        kept = bundle.manifests.keys() - {change.key for change in undecided(bundle, live, context)}
    planner = ObjectPlanner(bundle, live, context)
    outcomes = {
        key: planner.outcome(manifest, answers.get(key), in_sync=key in kept)
        for key, manifest in bundle.manifests.items()
    }
    changes = [
        _with_target(outcome.change, bundle.manifests, live)
        for outcome in outcomes.values()
        if outcome.change
    ]
    refused = [outcome.refusal for outcome in outcomes.values() if outcome.refusal]
    drifted = {key: one.drifted for key, one in outcomes.items() if one.drifted}
    narrowed = {change.key: change.nodes.lost for change in changes if _narrows(change, drifted)}
    deletes = _deletes(bundle, live, context, narrowed)
    spared = {key for refusal in deletes.refusals for key in (refusal.key, *refusal.held)}
    changes += deletes.changes
    in_order = apply_order.ordered(changes, apply_order.waves(bundle.manifests.values()))
    left = tuple(change for change in in_order if change.key not in spared)
    unknown = guard_limits.unknown_nodes(left, live)
    return Plan(
        bundle.commit,
        bundle.cluster.name,
        left,
        tuple(dict.fromkeys((*refused, *bundle.refusals, *deletes.refusals, *unknown))),
        deletes.hash,
        drifted,
        deletes.agreed,
        tuple(change for change in in_order if change.key in spared & deletes.weighed),
        bundle.cluster.order,
    )


class _Deletes(msgspec.Struct, frozen=True):
    """The deletes of a plan without guards, and the guards' refusals of them and of updates that
    remove agents.

    `agreed` objects may be deleted in later plans too; `weighed` ones are held back until the hash
    is approved.
    """

    changes: tuple[Change, ...]
    refusals: tuple[Skipped, ...]
    hash: str
    agreed: frozenset[Key]
    weighed: frozenset[Key]


def _deletes(
    bundle: Bundle, live: Live, context: PlanContext, narrowed: Mapping[Key, tuple[str, ...]]
) -> _Deletes:
    leaving, refused = deletions.of(bundle, live, context)
    collected = deletions.collectable(leaving, live, bundle)
    by_use = deletions.collected_by_use(leaving, live)
    orphans = {key: one for key, one in leaving.items() if key not in by_use}
    in_use = deletions.in_use(orphans, bundle, live, context)
    losses = guard_limits.Losses(
        orphans,
        narrowed,
        in_use,
        frozenset(bundle.manifests),
        empty=not (bundle.manifests or bundle.kept),
    )
    hash = _hash(bundle, context, {**orphans, **{key: leaving[key] for key in collected}}, losses)
    guarded = guard_limits.refusals(losses, live, context, hash)
    spared = {key for refusal in guarded for key in (refusal.key, *refusal.held)}
    doomed = [
        key for key in orphans if key not in spared and not deletions.is_ending(live.objects[key])
    ]
    changes = [
        Change(
            Operation.DELETE,
            key,
            None,
            nodes=NodeImpact(lost=orphans[key].lost),
            costs=_freed(key, orphans[key], live),
        )
        for key in orphans
    ]
    changes = [change for change in changes if not deletions.is_ending(live.objects[change.key])]
    changes += [Change(Operation.DELETE, key, None) for key in collected]
    agreed = context.state.approved & orphans.keys()
    if guard_limits.covers(context.options.approved, hash):
        agreed = frozenset(
            key for key in doomed if not guard_limits.takes_others(orphans[key], orphans)
        )
    held_back = frozenset(
        key
        for refusal in guarded
        if refusal.reason.effect.approvable
        for key in (refusal.key, *refusal.held)
        if key
    )
    waiting = rollout_uses.refusals(doomed, bundle, live, context)
    return _Deletes(tuple(changes), (*refused, *guarded, *waiting), hash, agreed, held_back)


def _freed(key: Key, leaving: Leaving, live: Live) -> tuple[Cost, ...]:
    """The requests of a DaemonSet that is deleted with its pods."""
    if not key.is_daemonset or not leaving.lost:
        return ()
    return rollout_impact.costs(live.objects[key], None, live.nodes)


def _narrows(change: Change, drifted: Mapping[Key, Drifted]) -> bool:
    """Whether an update removes agents from nodes. A correction of drift does not count: its commit
    was applied before.
    """
    return (
        change.operation is Operation.UPDATE
        and bool(change.nodes.lost)
        and change.key not in drifted
    )


def moving(plan: Plan) -> tuple[Key, ...]:
    """The DaemonSets whose change may move pods, so that their pods must be listed."""
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


def _hash(
    bundle: Bundle, context: PlanContext, leaving: Mapping[Key, Leaving], losses: Losses
) -> str:
    """A hash of the plan's result, constant during the apply and for commits without changes in
    this cluster.
    """
    manifests = [[str(key), manifest.digest] for key, manifest in sorted(bundle.manifests.items())]
    gone = [
        [
            str(key),
            one.policy.value,
            *(str(other) for other in one.takes if other not in leaving),
            *one.unlisted,
        ]
        for key, one in sorted(leaving.items())
    ]
    return guard_limits.hash_of(
        digest_of([bundle.cluster.name, context.stamp.owner, manifests, gone])[
            : guard_limits.DIGITS
        ],
        len(losses.nodes),
    )


def _with_target(change: Change, manifests: Mapping[Key, Manifest], live: Live) -> Change:
    """The change with the fields and the nodes of a target that it newly sets, or without losses
    after the promotion of a target.

    The DaemonSet keeps the proven template until the end of a staged rollout, so its own change has
    no field of the new one, and affects no node before. A guard at the end would run after every
    node was updated. So lost nodes count at the start, and not when the template follows.
    """
    old = live.objects.get(change.key)
    is_update = change.operation is Operation.UPDATE and change.key.is_daemonset
    if not is_update or old is None or change.manifest is None:
        return change
    before, after = targets.name_of(old), targets.name_of(change.manifest.body)
    place = change.key.namespace, after
    target = manifests.get(Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, *place))
    begins = target is not None and after != before
    template = revisions.template_of(target.body) if target and begins else None
    if template is not None:
        change = replace(change, fields=(*change.fields, *_fields(old, template)))
    if before and _is_promoted(change.key, before, live):
        return replace(change, nodes=replace(change.nodes, lost=()))
    if template is None:
        return change
    new = {**old, "spec": {**old["spec"], "template": template}}
    impact = rollout_impact.impact(old, new, live.nodes or (), rolls=False)
    nodes = replace(change.nodes, gained=impact.gained, lost=impact.lost)
    return replace(change, nodes=nodes, costs=rollout_impact.costs(old, new, live.nodes))


def _fields(old: Body, template: Body) -> tuple[FieldChange, ...]:
    before = {"spec": {"template": old["spec"]["template"]}}
    return diff.compare(before, {"spec": {"template": template}})


def _is_promoted(key: Key, name: str, live: Live) -> bool:
    own = live.revisions.get(key, ())
    return any(revision.name == name and target_revisions.is_promoted(revision) for revision in own)
