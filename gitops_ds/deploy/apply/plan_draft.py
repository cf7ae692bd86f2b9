"""The plan of one reconciliation, from the live objects and the dry runs: applies without a write,
with the same conflicts and refusals.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.change import Plan
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CONTROLLER_REVISION, POD, Body, Key, Resource, digest_of
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.values import replace
from gitops_ds.daemonset import claims
from gitops_ds.deploy import live_state, owner_identity, state_store
from gitops_ds.deploy.apply.applier import AT_ONCE, PlanInputs, conflicts_of
from gitops_ds.deploy.live_state import LocatedBundle
from gitops_ds.deploy.plan import deletions, drift, object_changes, planner, refusals, rollout_uses
from gitops_ds.deploy.target import PlanTarget
from gitops_ds.kube.apimachinery import daemonsets, pods
from gitops_ds.ownership import ignore_differences, object_owner, refused_writes
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, DryRunResult, FieldConflict, PlanContext
from gitops_ds.rollouts.causes import template_causes
from gitops_ds.rollouts.staging import git_template, staging, targets
from gitops_ds.rollouts.staging.staging import StagedBundle
from gitops_ds.rollouts.state import attested_records, rollout_ledger


class PlanDraft(msgspec.Struct, frozen=True):
    """A plan with its inputs, ready to be applied. `histories` are what is proven about templates
    afterwards.
    """

    plan: Plan
    bundle: Bundle
    commit: CommitInfo | None
    inputs: PlanInputs
    state: DeployerState
    histories: Mapping[Key, TemplateHistory] = msgspec.field(default_factory=dict)


Causes = Callable[[LocatedBundle, DeployerState, Live], Awaitable[Mapping[Key, TemplateCause]]]


async def draft(
    target: PlanTarget,
    bundle: Bundle,
    commit: CommitInfo | None,
    options: ApplyOptions,
    *,
    live: Live | None = None,
    causes: Causes | None = None,
) -> PlanDraft:
    """The plan for a bundle. Without `live` objects the cluster is read; `causes` returns the
    commits of templates that the state lacks.

    Raises ClusterError. Sends dry runs for objects that may differ from their manifest, and no
    writes.
    """
    state = await state_store.load(target.cluster, target.namespace, target.owner)
    located = await live_state.locate(target.cluster, bundle, state.inventory, commit)
    known = await rollout_ledger.read(target.cluster, target.namespace)
    if known is not None:
        target = replace(target, attested=partial(attested_records.attested, known=known))
    live = live or await live_state.read(target.cluster, located.resources, target.owner)
    if causes is not None:
        located = replace(located, causes=await causes(located, state, live))
    return await draft_located(target, located, options, state=state, live=live)


async def draft_located(
    target: PlanTarget,
    located: LocatedBundle,
    options: ApplyOptions,
    *,
    state: DeployerState,
    live: Live | None = None,
) -> PlanDraft:
    """As `draft`, with a state that was read before."""
    live = live or await live_state.read(target.cluster, located.resources, target.owner)
    live = live_state.attested(live, target.attested)
    resources = {**located.resources, **await _strays(target, located, live)}
    context = _context(target, located, options, state)
    if not options.adopt:
        wanted = (live.objects.get(key, {}) for key in located.bundle.manifests)
        foreign = owner_identity.others_of(wanted, target.owner) - options.other_owners.behind
        context = replace(context, owners=await owner_identity.describe_others(target, foreign))
    served = {key: m for key, m in located.bundle.manifests.items() if key in resources}
    staged, failed = await _staged(
        PlanInputs(target.cluster, resources, live, context),
        replace(located.bundle, manifests=served),
    )
    bundle = staged.bundle
    if failed:
        options = replace(options, deferred={**failed, **options.deferred})
        context = replace(context, options=options)
    resources = {
        **resources,
        **dict.fromkeys(bundle.manifests.keys() - resources.keys(), CONTROLLER_REVISION),
    }
    bundle = ignore_differences.over(bundle, live, options.ignore)
    live = await _with_deletions(target, bundle, live, context)
    inputs = PlanInputs(target.cluster, resources, live, context, target.known_pods)
    plan = await _plan(inputs, bundle)
    plan = replace(plan, changes=targets.with_words(plan.changes, staged.words))
    plan = _without_suspended(plan, located, inputs)
    return PlanDraft(plan, located.bundle, located.commit, inputs, state, staged.histories)


async def _staged(inputs: PlanInputs, bundle: Bundle) -> tuple[StagedBundle, Mapping[Key, Skipped]]:
    """The bundle with the target revisions of its rollouts, and the DaemonSets that wait because
    the API server can't answer what admission makes of them.
    """
    unknown = staging.to_ask(bundle, inputs.live, inputs.context)
    answers, failed = dict(await dry_run(inputs, unknown)), dict[Key, Skipped]()
    for manifest in unknown:
        answer = answers[manifest.key]
        if answer.body is not None and git_template.is_of_git(answer.body, manifest):
            continue
        try:
            created = await creation(inputs, manifest)
            answers[manifest.key] = replace(answer, created=created)
        except errors.ServerFault as error:
            failed[manifest.key] = refused_writes.rejected(manifest.key, str(error))
    known = {key: one for key, one in bundle.manifests.items() if key not in failed}
    staged = staging.staged(replace(bundle, manifests=known), inputs.live, inputs.context, answers)
    whole = replace(staged.bundle, manifests={**bundle.manifests, **staged.bundle.manifests})
    return (replace(staged, bundle=whole) if failed else staged), failed


async def _strays(target: PlanTarget, located: LocatedBundle, live: Live) -> Mapping[Key, Resource]:
    """The resources of objects that are ours only by their label, after a lost inventory."""
    strays, _ = await live_state.resources_of(
        target.cluster,
        replace(located.bundle, manifests={}),
        live.objects.keys() - located.resources.keys(),
    )
    return strays


def _context(
    target: PlanTarget, located: LocatedBundle, options: ApplyOptions, state: DeployerState
) -> PlanContext:
    commit, bundle = located.commit, located.bundle
    causes = {**template_causes.known(bundle, state), **located.causes}
    stamp = Stamp(
        target.owner,
        target.repository,
        commit.id if commit else "",
        commit.subject if commit else "",
        causes=template_causes.completed(bundle, causes, commit),
    )
    return PlanContext(
        stamp,
        options,
        state,
        now=target.clock(),
        drift_of_agent=located.bundle.drift,
        inventory=state.inventory if state.last_attempted else None,
    )


async def _with_deletions(
    target: PlanTarget, bundle: Bundle, live: Live, context: PlanContext
) -> Live:
    """The live objects with the inputs of the guards of deletions: what pods use, contents."""
    leaving, _ = deletions.of(bundle, live, context)
    live = await live_state.with_config_maps_in_use(target.cluster, live, leaving)
    if context.options.guards.prune:
        staged = rollout_uses.to_list(leaving, bundle, live)
        live = await _with_pod_uses(target.cluster, live, staged)
    return await target.contents(target.cluster, live, deletions.to_list(leaving, live, context))


async def _with_pod_uses(cluster: ClusterReader, live: Live, keys: Collection[Key]) -> Live:
    """Adds what the pods of these DaemonSets use: one list each, nothing if it is forbidden."""
    if not keys:
        return live
    specs = await asyncio.gather(*(_pod_specs(cluster, live.objects[key]) for key in keys))
    used = {
        key: frozenset[Key]().union(
            *(rollout_uses.of_pod(key.namespace, spec, live) for spec in some)
        )
        for key, some in zip(keys, specs, strict=True)
    }
    return replace(live, used_by_pods=used)


async def _pod_specs(cluster: ClusterReader, body: Body) -> list[Body]:
    daemonset = daemonsets.daemonset_of(body)
    try:
        listing = await cluster.list(POD, claims.selection(daemonset))
    except errors.Forbidden:
        return []
    return [
        pod.get("spec") or {}
        for pod in listing.items
        if any(
            reference.get("uid") == daemonset.uid
            for reference in pod["metadata"].get("ownerReferences") or ()
        )
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


async def _plan(inputs: PlanInputs, bundle: Bundle) -> Plan:
    live, context = inputs.live, inputs.context
    undecided = planner.undecided(bundle, live, context)
    answers = await dry_run(inputs, undecided)
    kept = bundle.manifests.keys() - {manifest.key for manifest in undecided}
    plan = planner.plan(bundle, live, context, answers, kept=kept)
    if moving := planner.moving(plan):
        live = await _with_pod_previews(inputs, live, moving)
        plan = planner.plan(bundle, live, context, answers, kept=kept)
    return plan


def _without_suspended(plan: Plan, located: LocatedBundle, inputs: PlanInputs) -> Plan:
    """The plan without the changes of suspended objects, and with every refusal."""
    suspended = refusals.of_suspended(
        plan.changes,
        inputs.live.objects,
        live_annotations=inputs.context.options.live_annotations,
    )
    keys = {refusal.key for refusal in suspended}
    return replace(
        plan,
        changes=tuple(change for change in plan.changes if change.key not in keys),
        refusals=(*located.refusals, *plan.refusals, *suspended),
    )


async def _with_pod_previews(inputs: PlanInputs, live: Live, keys: Iterable[Key]) -> Live:
    """Adds a preview of the pods of these DaemonSets after a change: one list each, if unknown.

    A DaemonSet without a pod, or with pods that may not be listed, has a preview only by its nodes;
    none if nodes are unknown.
    """
    if live.nodes is None:
        return live
    from gitops_ds.daemonset import rollout_forecast  # few plans affect pods

    changing = [key for key in keys if key in live.objects]
    observations = await asyncio.gather(*(_observation(inputs, live, key) for key in changing))
    return replace(
        live,
        foresee={
            key: partial(rollout_forecast.impact_of_change, seen)
            for key, seen in zip(changing, observations, strict=True)
            if seen
        },
    )


async def _observation(inputs: PlanInputs, live: Live, key: Key) -> Observation | None:
    """The controller's view of a DaemonSet; None without a pod."""
    daemonset = daemonsets.daemonset_of(live.objects[key])
    found = inputs.known_pods(daemonset)
    if found is None:
        try:
            which = replace(claims.selection(daemonset), brief=True)
            listing = await inputs.cluster.list(POD, which)
        except errors.Forbidden:
            return None
        found = [pods.pod_of(body) for body in listing.items]
    ours = (pod for pod in found if pod.owner is None or pod.owner.uid == daemonset.uid)
    sorted_pods = tuple(sorted(ours, key=lambda pod: pod.name))
    revisions = live.revisions.get(key, ())
    seen = Observation(0.0, daemonset, live.nodes or (), sorted_pods, revisions)
    return seen if sorted_pods and daemonset.selector else None


async def dry_run(inputs: PlanInputs, manifests: Iterable[Manifest]) -> Mapping[Key, DryRunResult]:
    """The results of dry runs of these manifests, some at once."""
    requested = list(manifests)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(manifest: Manifest) -> DryRunResult:
        async with turn:
            return await _dry_run_one(inputs, manifest)

    results = await asyncio.gather(*map(one, requested))
    return {manifest.key: result for manifest, result in zip(requested, results, strict=True)}


async def _dry_run_one(inputs: PlanInputs, manifest: Manifest) -> DryRunResult:
    live = inputs.live.objects.get(manifest.key)
    try:
        cluster = inputs.acting(manifest.key, manifest.agent)
        if live is None:
            return await _create(cluster, inputs, manifest)
        body = object_changes.probe(manifest, live, inputs.context)
        return await _update(
            cluster,
            inputs.resources[manifest.key],
            body,
            lambda conflicts: _may_force(inputs, manifest, live, conflicts),
        )
    except (
        errors.Invalid,
        errors.BadRequest,
        errors.Forbidden,
        errors.NotPermitted,
        errors.ServerFault,
    ) as error:
        return DryRunResult(refused=str(error))


async def _create(cluster: ClusterReader, inputs: PlanInputs, manifest: Manifest) -> DryRunResult:
    """The dry run of a new object. NotFound is not a refusal: the same plan may create the
    namespace or the definition.
    """
    body = object_owner.stamped(manifest, object_owner.stamp_of(manifest, inputs.context.stamp))
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        result = await cluster.dry_run(
            inputs.resources[manifest.key], body, manager=names.FIELD_MANAGER
        )
        return DryRunResult(result.body)
    return DryRunResult()


async def creation(inputs: PlanInputs, manifest: Manifest) -> Body | None:
    """The object as a creation would store it, with what admission adds: a dry run under another
    name, because the existing object has fields of other writers. None if it is refused. Raises
    ClusterError if the API server can't answer.
    """
    body = object_owner.stamped(manifest, object_owner.stamp_of(manifest, inputs.context.stamp))
    name = f"{manifest.key.name[:200]}-{digest_of([inputs.context.stamp.owner, body])[:10]}"
    body["metadata"] = {**body["metadata"], "name": name}
    with contextlib.suppress(
        errors.Invalid,
        errors.BadRequest,
        errors.Forbidden,
        errors.NotFound,
        errors.Conflict,
        errors.NotPermitted,
    ):
        result = await inputs.acting(manifest.key, manifest.agent).dry_run(
            inputs.resources[manifest.key], body, manager=names.FIELD_MANAGER
        )
        if result.created:
            return result.body
    return None


async def _update(
    cluster: ClusterReader,
    resource: Resource,
    body: Body,
    may_force: Callable[[tuple[FieldConflict, ...]], bool],
) -> DryRunResult:
    """The dry run of an existing object, repeated with force if the conflicts permit it."""
    try:
        result = await cluster.dry_run(resource, body, manager=names.FIELD_MANAGER)
    except errors.Conflict as error:
        conflicts = conflicts_of(error)
        if not may_force(conflicts):
            return DryRunResult(conflicts=conflicts)
        result = await cluster.dry_run(resource, body, manager=names.FIELD_MANAGER, force=True)
    return DryRunResult(result.body)


def _may_force(
    inputs: PlanInputs, manifest: Manifest, live: Body, conflicts: tuple[FieldConflict, ...]
) -> bool:
    """Whether the dry run forces fields of other managers; for drift that is only reported, the
    result is the correction.
    """
    reported = drift.is_left(manifest, live, inputs.context)
    return reported or planner.may_force(manifest, live, conflicts, inputs.context)
