"""One reconciliation with a prepared plan: applies or compares it, and stores the new state.

A reconciliation reads everything at its start, from Git and the cluster; its results are the
objects and the stored state. So it may be interrupted at any time, and the next one continues from
the state of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gitops_ds import errors
from gitops_ds.deployer import state_store
from gitops_ds.deployer.apply import applier, dependencies, other_owners, state_update
from gitops_ds.deployer.apply.applier import AppliedObject
from gitops_ds.deployer.apply.prepared_plan import PreparedPlan
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.git import address
from gitops_ds.model.change import Operation
from gitops_ds.model.deployer_state import DeployerState
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.deployer import (
    Applied,
    NotApplied,
    Planned,
    Reconciled,
    RepositoryMoved,
)
from gitops_ds.model.events.drift import DriftCorrected
from gitops_ds.model.values import replace
from gitops_ds.plan import drift
from gitops_ds.plan.options import ApplyOptions

_SAVE_ATTEMPTS = 5


class Reconciliation(msgspec.Struct, frozen=True):
    """The result of an applied plan: its event, and the stored state from now on."""

    ended: Reconciled
    state: DeployerState


async def carry_out(
    target: DeployTarget,
    prepared: PreparedPlan,
    options: ApplyOptions,
    emit: Emit,
    clock: Callable[[], float],
) -> Reconciliation:
    """Applies the plan, publishes every write, and saves the state if it changed.

    Raises NotPermitted before the first write if the plan's effect on nodes is unknown.
    """
    plan = prepared.plan
    if unknown := plan.unknown_nodes:
        raise errors.NotPermitted(f"nothing was applied: {unknown.message}")
    before = prepared.state.repository
    if before and not address.same_place(before, target.repository):
        emit(RepositoryMoved(clock(), target.owner, before, target.repository))
    _publish_plan(prepared, emit, clock)

    def report(done: AppliedObject) -> None:
        version = str(done.body["metadata"]["resourceVersion"]) if done.body else ""
        target.wrote(done.change.key, version)
        emit(Applied(clock(), done.change, done.warnings))
        if drifted := plan.drifted.get(done.change.key):
            emit(DriftCorrected(clock(), done.change.key, drifted, drift.words(drifted)))

    base = prepared.state
    taken = _taken_over(target, prepared)
    prepared = await _announce(target, prepared)
    waits = dependencies.of(target.cluster, prepared.bundle, options.patience)
    outcome = await applier.apply_changes(prepared.applier, plan.changes, waits, report)
    for change, refusal in outcome.refused:
        emit(NotApplied(clock(), refusal, change))
    state = _rebased(base, state_update.after_apply(prepared, outcome, target), prepared.state)
    if state != prepared.state:
        state = await _save(target, base, state)
        await other_owners.forget_unused(target, taken | target.unused, state.inventory, clock())
    refusals = (*plan.refusals, *(refusal for _, refusal in outcome.refused))
    ended = Reconciled(clock(), plan.commit, len(outcome.written), refusals)
    emit(ended)
    return Reconciliation(ended, state)


def _taken_over(target: DeployTarget, prepared: PreparedPlan) -> frozenset[str]:
    """The other owners of the objects that the plan writes."""
    objects = prepared.applier.live.objects
    return other_owners.of(
        (objects.get(change.key, {}) for change in prepared.plan.writes), target.owner
    )


async def compare(
    target: DeployTarget, prepared: PreparedPlan, emit: Emit, clock: Callable[[], float]
) -> DeployerState:
    """Publishes the plan without applying it, and saves the pending objects; the state from now
    on.
    """
    plan, context = prepared.plan, prepared.applier.context
    _publish_plan(prepared, emit, clock)
    state = replace(
        prepared.state,
        waiting=frozenset(change.key for change in plan.writes) | state_update.suspended(plan),
        drift=drift.standing(plan.drifted, context.state.drift, context.now),
    )
    return state if state == prepared.state else await _save(target, prepared.state, state)


def _publish_plan(prepared: PreparedPlan, emit: Emit, clock: Callable[[], float]) -> None:
    plan, context = prepared.plan, prepared.applier.context
    if plan.writes or plan.refusals:
        emit(Planned(clock(), plan))
    hold_for = context.options.hold_for
    for event in drift.changed(plan.drifted, context.state.drift, context.now, hold_for):
        emit(event)


async def _announce(target: DeployTarget, prepared: PreparedPlan) -> PreparedPlan:
    """Saves the objects to create and the approved deletions before the first write: so a killed
    process loses none of them.
    """
    state, plan = prepared.state, prepared.plan
    inventory = state.inventory | {
        change.key for change in plan.changes if change.operation is Operation.CREATE
    }
    approved = state.approved | plan.approved
    if (inventory, approved) == (state.inventory, state.approved):
        return prepared
    announced = replace(
        state,
        repository=target.repository,
        path=target.path,
        cluster=plan.cluster,
        inventory=inventory,
        approved=approved,
    )
    return replace(prepared, state=await _save(target, state, announced))


async def _save(target: DeployTarget, base: DeployerState, state: DeployerState) -> DeployerState:
    """Saves the state; after a concurrent write, the merged state of both, since they describe the
    same cluster. The reconciliation began with `base`.
    """
    merged = state
    for _ in range(_SAVE_ATTEMPTS):
        try:
            return await state_store.save(target.cluster, target.namespace, target.owner, merged)
        except (errors.Conflict, errors.AlreadyExists):
            other = await state_store.load(target.cluster, target.namespace, target.owner)
            merged = replace(
                _rebased(base, state, other),
                inventory=state.inventory | other.inventory,
                agents={**other.agents, **state.agents},
                digests={**other.digests, **state.digests},
                generations={**other.generations, **state.generations},
                revisions={**other.revisions, **state.revisions},
                templates={**other.templates, **state.templates},
                version=other.version,
            )
    return await state_store.save(target.cluster, target.namespace, target.owner, merged)


def _rebased(base: DeployerState, state: DeployerState, stored: DeployerState) -> DeployerState:
    """The state with the stored commits if only another process selected a commit after `base`, the
    state at the start: `apply --revision` may approve an older commit while the service corrects
    the objects to the last one.
    """
    if stored.last_attempted == base.last_attempted or state.last_attempted != base.last_attempted:
        return state
    return replace(state, last_good=stored.last_good, last_attempted=stored.last_attempted)
