"""`gitops-ds diff`: the changes of an apply, as `kubectl diff` prints them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from gitops_ds.cli import plan
from gitops_ds.cli.parameters import options


@dataclass(frozen=True, kw_only=True)
class DiffArgs(plan.ChangesArgs):
    """The arguments and options of `gitops-ds diff`."""

    show_secrets: bool


@options.command(DiffArgs)
@options.repository
@options.cluster_name
@options.namespace
@options.connection
@plan.changes
@options.option("--show-secrets", is_flag=True, help="Show secret values; by default ***.")
async def diff(args: DiffArgs) -> int:
    """Show the changes of an apply as kubectl diff does: the live objects against the results of
    server-side dry runs, compared by `diff -u -N` or KUBECTL_EXTERNAL_DIFF.

    Exits 0 without differences, 1 with differences or an object that would not be applied, and
    above 1 for an error.
    """
    from gitops_ds.cli.diff import live_diff
    from gitops_ds.core import errors
    from gitops_ds.core.redaction import texts

    request = await args.request()
    try:
        with plan.simulation_named():
            result = await live_diff.of(request)
    except errors.Refused as error:  # 1 would mean a difference
        options.say(f"error: {error}")
        return 3
    for refusal in result.refusals:
        options.say(f"not applied: {texts.words(refusal.message)}")
    await plan.report_uncommitted(request.repository, request.snapshot, quiet=args.quiet)
    shown = result.diffs if args.show_secrets else [live_diff.masked(diff) for diff in result.diffs]
    done = await live_diff.run_program(shown, interactive=sys.stdout.isatty())
    click.echo(done.text, nl=False)
    return done.code or int(any(refusal.reason.effect.fails_commit for refusal in result.refusals))
