"""Apply of the command line: a plan against a live cluster, and its writes."""

from __future__ import annotations

import time

import msgspec

from gitops_ds import errors
from gitops_ds.apimachinery import defaults
from gitops_ds.commands import plan as plan_command
from gitops_ds.deployer import source_status_store
from gitops_ds.deployer.apply import plan_execution
from gitops_ds.deployer.apply.prepared_plan import PreparedPlan
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.model.change import Operation, Plan
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.deployer import Reconciled
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Key, short
from gitops_ds.model.sources.bundle import Bundle
from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.pipeline import open_repository
from gitops_ds.plan.options import ApplyOptions


class AppliedCommit(msgspec.Struct, frozen=True):
    """The plan of an apply and its end; `live` is the cluster before it."""

    plan: Plan
    ended: Reconciled
    bundle: Bundle
    live: Live


async def apply(
    repository: open_repository.RepositoryRef,
    snapshot: SourceTree,
    target: plan_command.ApplyTarget,
    options: ApplyOptions,
    emit: Emit,
) -> AppliedCommit:
    """One complete reconciliation with a live cluster. Raises HistoryRewound for a commit older
    than the last one, without approval.
    """
    async with plan_command.drafted(repository, snapshot, target, options) as (place, draft):
        if not target.force_local:
            await refuse_beside_a_service(place, snapshot)
        if not options.go_back:
            await _refuse_going_back(repository, draft)
        done = await plan_execution.carry_out(place, draft, options, emit, time.time)
        return AppliedCommit(draft.plan, done.ended, draft.bundle, draft.applier.live)


def applied(plan: Plan) -> list[Key]:
    """The DaemonSets of a plan that exist after its apply."""
    return [
        change.key
        for change in plan.changes
        if change.key.is_daemonset and change.operation is not Operation.DELETE
    ]


def estimates(plan: Plan, bundle: Bundle, live: Live) -> dict[Key, float]:
    """The simulated seconds of each rollout that a plan begins, on the nodes of the cluster;
    without rollouts that do not end. `live` is the cluster before.
    """
    from gitops_ds.daemonset import rollout_simulation

    nodes, durations = live.nodes or (), dict[Key, float]()
    for change in plan_command.with_stages(plan, bundle, live).changes:
        if not change.key.is_daemonset or change.manifest is None:
            continue
        if change.stages is not None:
            if change.stages.seconds is not None:
                durations[change.key] = change.stages.seconds
        elif change.rollout is not None and change.rollout.rolls:
            desired = defaults.defaulted(change.manifest.body)
            rehearsal = rollout_simulation.rehearse(live.objects.get(change.key), desired, nodes)
            if not rehearsal.waiting:
                durations[change.key] = rehearsal.seconds
    return durations


async def refuse_beside_a_service(place: DeployTarget, snapshot: SourceTree) -> None:
    """Raises Refused if a running service would replace the commit: it follows the repository and
    applies another commit.

    As `argocd app sync --local` beside an automatic sync policy:
    https://github.com/argoproj/argo-cd/issues/3614
    """
    try:
        status = (
            await source_status_store.load_all(place.cluster, place.namespace, place.clock())
        ).get(place.owner)
    except errors.Forbidden:
        return  # the check is optional for accounts that may not read the statuses
    commit = snapshot.commit.id if snapshot.commit else None
    if status is None or not status.active or commit == status.newest:
        return
    raise errors.Refused(
        f"a running service follows {status.repository} here and would replace commit "
        f"{short(commit)} by {short(status.newest)}: "
        "push the commit, or `gitops-ds suspend` first; --force-local applies it anyway"
    )


async def _refuse_going_back(
    repository: open_repository.RepositoryRef, draft: PreparedPlan
) -> None:
    last, commit = draft.state.last_attempted, draft.commit
    if last is None or commit is None or last == commit.id:
        return
    from gitops_ds.git import object_reader

    async with open_repository.opened(repository) as repo:
        try:
            movement = await repo.movement(last, commit.id)
        except (
            errors.RevisionUnknown
        ):  # rewritten by a force-push: another line, not an older commit
            return
    if movement is object_reader.BranchMovement.REWOUND:
        raise object_reader.rewound(repository.display, last, commit.id)
