"""`gitops-ds uninstall`: removes the metadata of gitops-ds from a cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from gitops_ds.cli.parameters import formats, options
from gitops_ds.core.plain_text import counted


@dataclass(frozen=True, kw_only=True)
class UninstallArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds uninstall`."""

    owner: str
    all_owners: bool
    dry_run: bool
    yes: bool
    output: formats.Output


@options.command(UninstallArgs)
@options.option(
    "--owner",
    default="",
    help="Only objects of this owner (the value of the label gitops-ds.io/owner).",
)
@options.option("--all", "all_owners", is_flag=True, help="The objects of every owner.")
@options.option("--dry-run", is_flag=True, help="Print the objects only.")
@options.option("--yes", is_flag=True, help="Do not prompt for confirmation.")
@options.connection
@formats.output("text", "json")
async def uninstall(args: UninstallArgs) -> int:
    """Remove labels, annotations, field ownership and state of gitops-ds from the cluster; no pod
    restarts.
    """
    from gitops_ds.cli.uninstall import handover

    namespace = args.state_namespace
    if args.dry_run:
        async with args.open_cluster() as reader:
            _show(args, await handover.read(reader, namespace, args.owner), handed_back=0)
        return 0
    async with args.open_for_writes() as cluster:
        what = await handover.read(cluster, namespace, args.owner)
        if len(what.owners) > 1 and not args.all_owners:
            owners = ", ".join(sorted(what.owners))
            raise click.UsageError(
                f"several repositories own objects here: choose one with --owner ({owners}), or "
                "all with --all"
            )
        await handover.must_be_stopped(cluster, namespace)
        question = (
            f"Hand back {counted(len(what.objects), 'object')} of "
            f"{', '.join(sorted(what.owners)) or 'no owner'}?"
        )
        if not args.yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise click.UsageError(
                "nothing was changed: confirm with --yes; --dry-run lists "
                f"{counted(len(what.objects), 'object')}"
            )
        changed = await handover.hand_back(
            cluster, namespace, what, lambda news: options.say(news, quiet=args.quiet)
        )
        if not args.owner:
            await handover.clear(cluster, namespace)
        _show(args, what, handed_back=changed)
    return 0


def _show(args: UninstallArgs, what: Any, *, handed_back: int) -> None:
    if args.output == "json":
        fields = {
            "owners": sorted(what.owners),
            "objects": [str(key) for key in what.objects],
            "taintedNodes": [*what.tainted],
            "handedBack": handed_back,
        }
        formats.show_json(formats.document("Uninstall", **fields))
        return
    for key in what.objects if args.dry_run else ():
        click.echo(f"would hand back {key}")
    for key in what.unknown:
        options.say(f"{key}: the cluster no longer serves this kind")
    for key, owner in what.elsewhere.items():
        options.say(
            f"{key} is kept: it belongs to {owner}, which has no state here; "
            f"--owner {owner} hands back "
            "the objects with its label"
        )
    if what.tainted:
        options.say(what.taint_advice)
    if not args.dry_run:
        click.echo(
            f"{counted(handed_back, 'object')} handed back; remove the service with kubectl "
            "delete -k deploy/"
        )
        stays = (
            "the label app.kubernetes.io/managed-by, the annotation kubernetes.io/change-cause, "
            f"the namespace {args.state_namespace}, and events until they expire"
        )
        options.say(f"remaining: {stays}")
