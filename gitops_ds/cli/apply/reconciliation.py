"""An apply: a plan against a live cluster, and its writes."""

from __future__ import annotations

import time

from gitops_ds.cli.plan import planning
from gitops_ds.cli.plan.planning import PlanRequest
from gitops_ds.core import errors
from gitops_ds.core.change import Operation, Plan
from gitops_ds.core.events.base import Emit
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Key, short
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy import source_status_store
from gitops_ds.deploy.apply import plan_execution
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.deploy.apply.plan_execution import Reconciliation
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.target import PlanTarget
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.kube.client import connect


async def apply(request: PlanRequest, emit: Emit) -> Reconciliation:
    """One complete reconciliation with a live cluster. Raises HistoryRewound for a commit older
    than the last one, without approval.
    """
    prepared_commit = planning.deployable(request)
    async with connect.writing(*planning.connection(request, prepared_commit)) as cluster:
        planned_for, draft = await planning.draft(cluster, request, prepared_commit)
        place = planned_for.for_writes(cluster)
        if not request.target.force_local:
            await refuse_beside_a_service(place, request.snapshot)
        if not request.options.go_back:
            await _refuse_going_back(request.repository, draft)
        return await plan_execution.carry_out(place, draft, request.options, emit, time.time)


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
    from gitops_ds.daemonset import rollout_forecast

    nodes, durations = live.nodes or (), dict[Key, float]()
    for change in planning.with_stages(plan, bundle, live).changes:
        if not change.key.is_daemonset or change.manifest is None:
            continue
        if change.stages is not None:
            if change.stages.seconds is not None:
                durations[change.key] = change.stages.seconds
        elif change.rollout is not None and change.rollout.rolls:
            desired = defaults.defaulted(change.manifest.body)
            forecast = rollout_forecast.of(live.objects.get(change.key), desired, nodes)
            if not forecast.waiting:
                durations[change.key] = forecast.seconds
    return durations


async def refuse_beside_a_service(place: PlanTarget, snapshot: SourceTree) -> None:
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


async def _refuse_going_back(repository: open_repository.RepositoryRef, draft: PlanDraft) -> None:
    last, commit = draft.state.last_attempted, draft.commit
    if last is None or commit is None or last == commit.id:
        return
    from gitops_ds.source.git import object_reader

    async with open_repository.opened(repository) as repo:
        try:
            movement = await repo.movement(last, commit.id)
        except (
            errors.RevisionUnknown
        ):  # rewritten by a force-push: another line, not an older commit
            return
    if movement is object_reader.BranchMovement.REWOUND:
        raise object_reader.rewound(repository.display, last, commit.id)
