"""`gitops-ds diff`: the changes of an apply, as `kubectl diff` prints them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

from gitops_ds.cli import plan
from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.live_diff import ObjectDiff
    from gitops_ds.commands.plan import ApplyTarget
    from gitops_ds.model.skip_reasons import Skipped
    from gitops_ds.model.sources.source_tree import SourceTree
    from gitops_ds.pipeline.open_repository import RepositoryRef
    from gitops_ds.plan.options import ApplyOptions


@dataclass(frozen=True, kw_only=True)
class DiffArgs(plan.ChangesArgs):
    """The arguments and options of `gitops-ds diff`."""

    show_secrets: bool


@click.command()
@options.repository
@options.cluster_name
@options.namespace
@options.connection
@plan.changes
@options.option("--show-secrets", is_flag=True, help="Show secret values; by default ***.")
@options.common
@options.typed(DiffArgs)
def diff(args: DiffArgs) -> int:
    """Show the changes of an apply as kubectl diff does: the live objects against the results of
    server-side dry runs, compared by `diff -u -N` or KUBECTL_EXTERNAL_DIFF.

    Exits 0 without differences, 1 with differences or an object that would not be applied, and
    above 1 for an error.
    """
    with plan.simulation_named():
        return options.run(_diff(args))


class _Diffs(msgspec.Struct, frozen=True):
    """The differences of a plan, and what it skips."""

    diffs: list[ObjectDiff]
    refusals: tuple[Skipped, ...]


async def _diff(args: DiffArgs) -> int:
    from gitops_ds import errors
    from gitops_ds.commands import live_diff
    from gitops_ds.commands import plan as plan_command
    from gitops_ds.pipeline import open_repository
    from gitops_ds.plan import prune
    from gitops_ds.plan.options import ApplyOptions
    from gitops_ds.redaction import texts

    repository = args.repository_ref()
    options.report_work_tree(
        repository, quiet=args.quiet or bool(args.repository or args.directory)
    )
    snapshot = await open_repository.snapshot(repository, args.revision)
    target = plan_command.ApplyTarget(
        args.cluster, args.namespace, args.connection(), args.snapshot, args.simulate
    )
    apply_options = ApplyOptions(prune.Guards(prune=args.prune), args.adopt, args.force_conflicts)
    try:
        result = await _changes(repository, snapshot, target, apply_options)
    except errors.Refused as error:  # 1 would mean a difference
        options.say(f"error: {error}")
        return 3
    for refusal in result.refusals:
        options.say(f"not applied: {texts.words(refusal.message)}")
    await plan.report_uncommitted(repository, snapshot, quiet=args.quiet)
    shown = result.diffs if args.show_secrets else [live_diff.masked(one) for one in result.diffs]
    done = await live_diff.run_program(shown, interactive=sys.stdout.isatty())
    click.echo(done.text, nl=False)
    return done.code or int(any(one.reason.effect.fails_commit for one in result.refusals))


async def _changes(
    repository: RepositoryRef, snapshot: SourceTree, target: ApplyTarget, options: ApplyOptions
) -> _Diffs:
    from gitops_ds.commands import live_diff
    from gitops_ds.commands import plan as plan_command

    if not target.is_live:
        made = plan_command.planned(repository, snapshot, target, options)
        changes = (*made.plan.writes, *made.plan.held)
        diffs = live_diff.foreseen(changes, made.live, made.context)
        return _Diffs(diffs, made.plan.refusals)
    async with plan_command.drafted(repository, snapshot, target, options) as (_, draft):
        return _Diffs(await live_diff.of_plan(draft), draft.plan.refusals)
