"""`gitops-ds drift`: the drift of a cluster, and the commit that keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, commit_options, formats, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.change import Drifted
    from gitops_ds.core.objects import Key


@dataclass(frozen=True, kw_only=True)
class DriftArgs(commit_options.CommitArgs, options.CommitTargetArgs, options.ConnectionArgs):
    """The arguments and options of `gitops-ds drift`."""

    name: str | None
    exit_code: bool


@options.command(DriftArgs)
@click.argument("name", required=False, shell_complete=candidates.daemonsets)
@options.option("--push", is_flag=True, help="Push the commit that keeps the drift.")
@options.option("--print", "only_print", is_flag=True, help="Print that commit.")
@commit_options.written
@options.option("--exit-code", is_flag=True, help="Exit 1 if there is drift.")
@options.written_to
@options.connection
@formats.output("text", "json")
async def drift(args: DriftArgs) -> int:
    """Show fields that were changed in the cluster and their field managers; with --print or --push
    write the commit that keeps the changes.
    """
    if (args.push or args.only_print) and not args.name:
        raise click.UsageError("NAME is required with --push and --print: ds/NAME")
    from gitops_ds.cli.commits import git_commit
    from gitops_ds.cli.drift import drift_commit
    from gitops_ds.cli.plan import planning
    from gitops_ds.status import agents

    repository = args.repository_ref()
    target = planning.ApplyTarget(args.cluster, args.namespace, args.connection())
    drifts = await drift_commit.read(repository, target)
    if args.name:
        name = agents.name_of(args.name)
        drifts = {
            key: drifted
            for key, drifted in drifts.items()
            if key.is_daemonset and key.name == name and args.namespace in ("", key.namespace)
        }
    if args.name and (args.push or args.only_print):
        key, drifted = _only(args.name, drifts)
        written = await git_commit.on_server(repository, args.proposal())
        done = await drift_commit.take(written, key, drifted, args, args.reason)
        commit_options.show(args, "Drift", done, written.repository.display)
        return 0
    _show_drift(drifts, args)
    return 1 if args.exit_code and drifts else 0


def _only(name: str, drifts: Mapping[Key, Drifted]) -> tuple[Key, Drifted]:
    """The drift of the one DaemonSet. Raises UsageError for several, Refused for none."""
    from gitops_ds.core import errors

    if len(drifts) > 1:
        spaces = ", ".join(key.namespace for key in drifts)
        raise errors.UsageError(f"{name} was changed in the namespaces {spaces}: choose with -n")
    for key, drifted in drifts.items():
        return key, drifted
    raise errors.Refused(f"{name} has no drift: there is nothing to commit")


def _show_drift(drifted: Mapping[Key, Drifted], args: DriftArgs) -> None:
    from gitops_ds.core import plain_text
    from gitops_ds.core.objects import show_path
    from gitops_ds.core.redaction import objects
    from gitops_ds.deploy.plan import drift

    if args.output == "json":
        items = [
            {
                "object": {"kind": key.kind, "namespace": key.namespace, "name": key.name},
                **drift.as_json(changes),
            }
            for key, changes in drifted.items()
        ]
        formats.show_json(formats.document("Drift", items=items))
        return
    for key, changes in drifted.items():
        click.echo(f"{key} was {drift.words(changes)}")
        for change in (objects.field(key, field) for field in changes.fields):
            path = plain_text.line(show_path(change.path))
            click.echo(f"  {path}: {change.new!r} in Git, {change.old!r} in the cluster")
    if not drifted:
        options.say("no drift found", quiet=args.quiet)
    elif any(key.is_daemonset for key in drifted):
        keep = "to keep a change of a DaemonSet, commit it: gitops-ds drift ds/NAME --push"
        options.say(keep, quiet=args.quiet)
