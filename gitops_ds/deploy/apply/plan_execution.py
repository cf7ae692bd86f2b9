"""One reconciliation with the draft of a plan: applies or compares it, and stores the new state.

A reconciliation reads everything at its start, from Git and the cluster; its results are the
objects and the stored state. So it may be interrupted at any time, and the next one continues from
the state of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.change import Change, Operation, Plan
from gitops_ds.core.deployer_state import DeployerState, Generation
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.deployer import Applied, NotApplied, Planned, Reconciled, RepositoryMoved
from gitops_ds.core.events.drift import DriftCorrected
from gitops_ds.core.objects import DAEMONSET, CommitId, Key, annotations_of
from gitops_ds.core.required_in_git import AgentRecord
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import LEFT_GIT, DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.deploy import owner_identity, state_store
from gitops_ds.deploy.apply import applied_templates, applier, daemonset_writes, template_commits
from gitops_ds.deploy.apply.applier import AppliedObject, Applier, ApplyOutcome
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.deploy.plan import deletions, drift
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import template_history
from gitops_ds.source.git import address
from gitops_ds.startup_taints import required_agents

_SAVE_ATTEMPTS = 5
NOTHING = TemplateHistory()


class Reconciliation(msgspec.Struct, frozen=True):
    """The result of an applied plan, whose `inputs` are the cluster before it: its event, and the
    stored state from now on.
    """

    draft: PlanDraft
    ended: Reconciled
    state: DeployerState


async def carry_out(
    target: DeployTarget,
    draft: PlanDraft,
    options: ApplyOptions,
    emit: Emit,
    clock: Callable[[], float],
) -> Reconciliation:
    """Applies the plan, publishes every write, and saves the state if it changed.

    Raises NotPermitted before the first write if the plan's effect on nodes is unknown.
    """
    plan = draft.plan
    if unknown := plan.unknown_nodes:
        raise errors.NotPermitted(f"nothing was applied: {unknown.message}")
    before = draft.state.repository
    if before and not address.same_place(before, target.repository):
        emit(RepositoryMoved(clock(), target.owner, before, target.repository))
    _publish_plan(draft, emit, clock)

    def report(done: AppliedObject) -> None:
        version = str(done.body["metadata"]["resourceVersion"]) if done.body else ""
        target.wrote(done.change.key, version)
        commit = str(annotations_of(done.body).get(names.COMMIT) or "") if done.body else ""
        emit(Applied(clock(), done.change, done.warnings, commit))
        if drifted := plan.drifted.get(done.change.key):
            emit(DriftCorrected(clock(), done.change.key, drifted, drift.words(drifted)))

    base = draft.state
    taken = _taken_over(target, draft)
    draft = await _save_before_writes(target, draft)
    await target.announce(daemonset_writes.planned(draft))
    waits = applier.dependencies_of(target.cluster, draft.bundle, options.patience)

    async def record(written: Sequence[AppliedObject]) -> None:
        nonlocal draft
        await target.announce(daemonset_writes.done(draft, written))
        if histories := await applied_templates.of(draft, written):
            templates = {**draft.state.templates, **histories}
            state = await _save(target, base, replace(draft.state, templates=templates))
            draft = replace(draft, state=state, histories={**draft.histories, **histories})

    outcome = await applier.apply_changes(
        _applier(target, draft), plan.changes, waits, report, record
    )
    for change, refusal in outcome.refused:
        emit(NotApplied(clock(), refusal, change))
    await target.announce(daemonset_writes.done(draft, outcome.unrecorded))
    histories = await applied_templates.of(draft, outcome.unrecorded)
    draft = replace(draft, histories={**draft.histories, **histories})
    state = _rebased(base, after_apply(draft, outcome, target), draft.state)
    if state != draft.state:
        state = await _save(target, base, state)
        await owner_identity.forget_unused(target, taken | target.unused, state.inventory, clock())
    refusals = (*plan.refusals, *(refusal for _, refusal in outcome.refused))
    ended = Reconciled(clock(), plan.commit, len(outcome.written), refusals)
    emit(ended)
    return Reconciliation(draft, ended, state)


def _applier(target: DeployTarget, draft: PlanDraft) -> Applier:
    inputs = draft.inputs
    return Applier(target.cluster, inputs.resources, inputs.live, inputs.context)


def _taken_over(target: DeployTarget, draft: PlanDraft) -> frozenset[str]:
    """The other owners of the objects that the plan writes."""
    objects = draft.inputs.live.objects
    return owner_identity.others_of(
        (objects.get(change.key, {}) for change in draft.plan.writes), target.owner
    )


async def compare(
    target: DeployTarget, draft: PlanDraft, emit: Emit, clock: Callable[[], float]
) -> DeployerState:
    """Publishes the plan without applying it, and saves the pending objects; the state from now
    on.
    """
    plan, context = draft.plan, draft.inputs.context
    _publish_plan(draft, emit, clock)
    state = replace(
        draft.state,
        waiting=frozenset(change.key for change in plan.writes) | suspended(plan),
        drift=drift.standing(plan.drifted, context.state.drift, context.now),
    )
    return state if state == draft.state else await _save(target, draft.state, state)


def _publish_plan(draft: PlanDraft, emit: Emit, clock: Callable[[], float]) -> None:
    plan, context = draft.plan, draft.inputs.context
    if plan.writes or plan.refusals:
        emit(Planned(clock(), plan))
    hold_for = context.options.hold_for
    for event in drift.changed(plan.drifted, context.state.drift, context.now, hold_for):
        emit(event)


async def _save_before_writes(target: DeployTarget, draft: PlanDraft) -> PlanDraft:
    """Saves the objects to create, with the first templates of staged DaemonSets, and the approved
    deletions before the first write: so a killed process loses none of them.
    """
    state, plan = draft.state, draft.plan
    inventory = state.inventory | {
        change.key for change in plan.changes if change.operation is Operation.CREATE
    }
    approved = state.approved | plan.approved
    first = {
        change.key: history
        for change in plan.changes
        if change.operation is Operation.CREATE
        and (history := draft.histories.get(change.key)) is not None
        and history.is_announced
        and not history.announces(state.templates.get(change.key))
    }
    if not first and (inventory, approved) == (state.inventory, state.approved):
        return draft
    announced = replace(
        state,
        repository=target.repository,
        path=target.path,
        cluster=plan.cluster,
        inventory=inventory,
        approved=approved,
        templates={**state.templates, **first},
    )
    return replace(draft, state=await _save(target, state, announced))


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
                commits={**other.commits, **state.commits},
                causes={**other.causes, **state.causes},
                templates={**other.templates, **state.templates},
                required=_joined(other.required, state.required),
                version=other.version,
            )
    return await state_store.save(target.cluster, target.namespace, target.owner, merged)


def _joined(
    other: Mapping[Key, AgentRecord] | None, own: Mapping[Key, AgentRecord] | None
) -> Mapping[Key, AgentRecord] | None:
    """The required agents of both states."""
    return other if own is None else {**(other or {}), **own}


def _rebased(base: DeployerState, state: DeployerState, stored: DeployerState) -> DeployerState:
    """The state with the stored commits if only another process selected a commit after `base`, the
    state at the start: `apply --revision` may approve an older commit while the service corrects
    the objects to the last one.
    """
    if stored.last_attempted == base.last_attempted or state.last_attempted != base.last_attempted:
        return state
    return replace(state, last_good=stored.last_good, last_attempted=stored.last_attempted)


def suspended(plan: Plan) -> frozenset[Key]:
    """The objects that a suspension keeps unchanged."""
    return frozenset(
        refusal.key for refusal in plan.refusals if refusal.key and refusal.reason.effect.suspended
    )


def _kept(plan: Plan) -> frozenset[Key]:
    """The objects that left Git and are not deleted."""
    kept = [refusal for refusal in plan.refusals if refusal.reason in LEFT_GIT]
    return frozenset(
        key for outcome in kept for key in (*outcome.held, *((outcome.key,) if outcome.key else ()))
    )


def after_apply(draft: PlanDraft, outcome: ApplyOutcome, target: DeployTarget) -> DeployerState:
    """The state after a reconciliation. An object leaves the inventory when its deletion was
    accepted, or when it does not exist.

    An object whose creation was refused stays in the inventory: otherwise each attempt would add
    and remove it, and each write of the state would cause the next reconciliation.
    """
    old, plan, context = draft.state, draft.plan, draft.inputs.context
    gone = {done.change.key for done in outcome.written if done.body is None}
    written = {done.change.key: done.change for done in outcome.written if done.change.manifest}
    settled = {
        change.key: change for change in plan.changes if change.operation is Operation.KEEP
    } | written
    # a deferred object was not read
    refused = {change.key for change, _ in outcome.refused} | context.options.deferred.keys()
    gone |= old.inventory - settled.keys() - refused - draft.inputs.live.objects.keys()
    digests = {key: digest for key, digest in old.digests.items() if key not in gone}
    standing = drift.standing(plan.drifted, context.state.drift, context.now)
    digests |= {key: change.manifest.digest for key, change in settled.items() if change.manifest}
    clean = not outcome.refused and all(
        refusal.reason.effect.keeps_commit_good for refusal in plan.refusals
    )
    return replace(
        old,
        repository=target.repository,
        path=target.path,
        cluster=plan.cluster,
        last_attempted=plan.commit,
        last_good=plan.commit if clean else old.last_good,
        inventory=(inventory := (old.inventory | settled.keys() | _recovered(draft)) - gone),
        agents=_agents(old, settled.values(), inventory),
        digests=digests,
        generations=_generations(draft, outcome, gone),
        templates=_templates(draft, settled.keys(), inventory),
        required=_required(draft, settled),
        revisions={},  # of earlier versions
        commits=template_commits.after(draft, outcome, gone),
        causes=_causes(draft, settled.keys()),
        waiting=suspended(plan),
        kept=_kept(plan) - gone,
        drift={key: left for key, left in standing.items() if key not in written},
        approved=plan.approved - gone,
    )


def _causes(draft: PlanDraft, settled: Set[Key]) -> Mapping[Key, TemplateCause]:
    """The commits of the templates in Git. One that is not in the cluster, as of a suspended
    DaemonSet, is not applied.
    """
    before, causes = draft.state.causes, dict[Key, TemplateCause]()
    for key, cause in draft.inputs.context.stamp.causes.items():
        known, history = before.get(key), draft.histories.get(key)
        is_same = known is not None and known.source == cause.source
        is_applied = known is not None and is_same and known.is_applied
        head = known.head if known is not None and is_applied else draft.plan.commit or ""
        records = (history.target, history.proof) if history is not None else ()
        staged = {record.source for record in records if record is not None}
        is_applied |= key in settled and (not staged or cause.source in staged)
        causes[key] = replace(cause, is_applied=is_applied, head=head)
    return causes


def _generations(
    draft: PlanDraft, outcome: ApplyOutcome, gone: set[Key]
) -> Mapping[Key, Generation]:
    """The generation of every DaemonSet that matches the plan; for others the stored one."""
    kept = [change.key for change in draft.plan.changes if change.operation is Operation.KEEP]
    bodies = {key: draft.inputs.live.objects.get(key) for key in kept}
    bodies |= {done.change.key: done.body for done in outcome.written}
    generations = {key: one for key, one in draft.state.generations.items() if key not in gone}
    for key, body in bodies.items():
        metadata = (body or {}).get("metadata") or {}
        commit = (metadata.get("annotations") or {}).get(names.COMMIT)
        if key.kind == DAEMONSET.kind and commit and metadata.get("generation"):
            generations[key] = Generation(int(metadata["generation"]), CommitId(commit))
    return generations


def _templates(
    draft: PlanDraft, settled: Set[Key], inventory: Set[Key]
) -> Mapping[Key, TemplateHistory]:
    """What is known about the templates of DaemonSets. Without a policy they are not staged, so
    that only the halted and the applied ones are kept.
    """
    before = draft.state.templates
    after = {**applied_templates.unchanged(draft), **draft.histories}
    kept = {
        key: template_history.without_policy(history)
        for key, history in before.items()
        if key not in after and key in inventory
    }
    kept |= {key: before[key] for key in after.keys() & before.keys()}
    kept |= {key: history for key, history in after.items() if key in settled}
    last = draft.state.last_attempted or ""
    for key, history in kept.items():
        manifest = draft.bundle.manifests.get(key) if key in settled else None
        source = template_digests.digest(manifest) if manifest is not None else None
        kept[key] = template_history.following(history, source, before.get(key, NOTHING), last)
    return {key: history for key, history in kept.items() if history != NOTHING}


def _required(draft: PlanDraft, settled: Mapping[Key, Change]) -> Mapping[Key, AgentRecord]:
    """The agents that Git requires on nodes, as they are applied; one that is skipped stays as it
    was.
    """
    before, required = draft.state.required or {}, dict[Key, AgentRecord]()
    for key, manifest in draft.bundle.manifests.items():
        if not key.is_daemonset or not daemonsets.is_required_for_work(manifest.body):
            continue
        change, earlier = settled.get(key), before.get(key)
        if change is not None and change.manifest is not None:
            body, staged = change.manifest.body, key in draft.histories
            required[key] = required_agents.record_of(body, staged=staged, before=earlier)
        elif earlier is not None:
            required[key] = earlier
    return required


def _recovered(draft: PlanDraft) -> frozenset[Key]:
    """Our objects after a lost inventory, including those that a guard keeps."""
    if draft.inputs.context.inventory is not None:
        return frozenset()
    return frozenset(deletions.of(draft.bundle, draft.inputs.live, draft.inputs.context)[0])


def _agents(
    old: DeployerState, settled: Iterable[Change], inventory: frozenset[Key]
) -> Mapping[Key, str]:
    agents = {key: agent for key, agent in old.agents.items() if key in inventory}
    for change in settled:
        if change.manifest is not None:
            agents.pop(change.key, None)
            agents |= (
                {change.key: change.manifest.agent}
                if change.manifest.agent and change.key in inventory
                else {}
            )
    return agents


def next_comparison(state: DeployerState, options: ApplyOptions, now: float) -> float:
    """When an unchanged cluster is compared again, in seconds since 1970."""
    ends = (
        left.since + options.hold_for
        for left in state.drift.values()
        if left.choice is DriftPolicy.HOLD
    )
    return min([now + options.compare_every, *(end for end in ends if end > now)])
