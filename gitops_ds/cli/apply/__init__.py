"""`gitops-ds apply`: one reconciliation, from a commit to the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import plan
from gitops_ds.cli.parameters import formats, options
from gitops_ds.core.objects import short

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.change import Plan
    from gitops_ds.core.events.base import Emit, Event
    from gitops_ds.deploy.apply.plan_execution import Reconciliation
    from gitops_ds.ownership.options import ApplyOptions


@dataclass(frozen=True, kw_only=True)
class ApplyArgs(options.RepositoryArgs, options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds apply`."""

    cluster: str
    namespace: str
    prune: bool
    adopt: bool
    force_conflicts: bool
    force_local: bool
    dry_run: bool
    wait: bool
    timeout: float
    approve: str
    output: formats.Output


@options.command(ApplyArgs)
@options.committed_repository
@options.cluster_name
@options.namespace
@options.connection
@options.option(
    "--prune/--no-prune",
    default=False,
    help="Also delete objects that were removed from Git, within the guards.",
)
@options.option("--adopt", is_flag=True, help="Take over objects that other tools applied.")
@options.option(
    "--force-conflicts", is_flag=True, help="Force-apply fields owned by other field managers."
)
@options.option(
    "--force-local",
    is_flag=True,
    help="Apply even if a running service follows another commit.",
)
@options.option("--dry-run", is_flag=True, help="Print the plan only.")
@options.option("--wait", is_flag=True, help="Wait until every rollout is complete.")
@options.time_limit("5m", "The time limit of --wait and of waiting for dependencies.")
@options.option(
    "--approve",
    metavar="HASH",
    default="",
    callback=lambda _, __, value: options.plan_hash(value),
    help="The hash of a plan that is approved to delete more than the guards allow.",
)
@formats.output("text", "json")
async def apply(args: ApplyArgs) -> int:
    """Fetch, check, plan and apply a commit. Exits 1 if an object of the commit was not applied."""
    from gitops_ds.cli.plan import planning
    from gitops_ds.deploy.pipeline import open_repository

    repository = args.repository_ref()
    snapshot = await open_repository.snapshot(repository, args.revision, committed=True)
    target = planning.ApplyTarget(
        args.cluster, args.namespace, args.connection(), force_local=args.force_local
    )
    request = planning.PlanRequest(repository, snapshot, target, _apply_options(args))
    if args.revision is None and (more := await planning.uncommitted(repository, snapshot)):
        options.say(
            f"warning: the work tree has changes that are not applied: {more}; commit them first",
            quiet=args.quiet,
        )
    if args.dry_run:
        _show(await planning.plan(request), args, None)
        return 0
    from gitops_ds.cli.apply import reconciliation

    result = await reconciliation.apply(request, _printer(args))
    _show(result.draft.plan, args, result.ended.writes)
    if result.ended.failed:
        return 1
    if args.wait:
        await _wait(args, result)
    return 0


async def _wait(args: ApplyArgs, result: Reconciliation) -> None:
    """Waits for the rollouts of an apply, with their progress."""
    from gitops_ds.cli.apply import reconciliation
    from gitops_ds.cli.output import rollout_display
    from gitops_ds.cli.wait import by_status
    from gitops_ds.kube.client import connect

    draft = result.draft
    keys = reconciliation.applied(draft.plan)
    estimates = partial(reconciliation.estimates, draft.plan, draft.bundle, draft.inputs.live)
    connection = args.connection().naming(args.cluster)
    async with connect.reading(connection, draft.bundle.cluster) as cluster:
        with rollout_display.shown(quiet=args.quiet, estimates=estimates) as display:
            listener = by_status.RolloutListener(display.report, display.progress)
            await by_status.wait_for_rollouts(cluster, keys, args.timeout, listener)


def _apply_options(args: ApplyArgs) -> ApplyOptions:
    """The options of the reconciliation; an explicit revision may be an older commit."""
    from gitops_ds.ownership.options import ApplyOptions, Guards

    return ApplyOptions(
        Guards(prune=args.prune),
        args.adopt,
        args.force_conflicts,
        approved=args.approve,
        patience=args.timeout,
        go_back=args.revision is not None,
    )


def _printer(args: ApplyArgs) -> Emit:
    """Prints each write as it happens."""
    from gitops_ds.core.events.deployer import Applied, NotApplied

    def print_event(event: Event) -> None:
        if isinstance(event, Applied):
            if args.output == "text":
                click.echo(f"{event.change.operation.past} {event.change.key}")
            for warning in event.warnings:
                options.say(f"warning: {event.change.key}: {warning}", quiet=args.quiet)
        elif isinstance(event, NotApplied):
            options.say(f"not applied: {event.refusal.message}")

    return print_event


def _show(made: Plan, args: ApplyArgs, writes: int | None) -> None:
    """Prints the plan as JSON; as text the plan of a dry run (without `writes`), else the skipped
    objects and a summary.
    """
    from gitops_ds.deploy.plan import printers

    if args.output == "json":
        formats.show_json(printers.as_json(made))
    elif writes is None:
        click.echo(plan.coloured(printers.as_text(made)), nl=False)
    else:
        for refusal in made.refusals:
            options.say(f"not applied: {refusal.message}")
        unchanged = len(made.changes) - len(made.writes)
        click.echo(f"commit {short(made.commit)}: {writes} written, {unchanged} unchanged")
