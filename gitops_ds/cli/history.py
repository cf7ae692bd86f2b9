"""`gitops-ds history`: the ControllerRevisions of a DaemonSet with their commits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, list_options, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.apimachinery import jsonpath

HALT_HEAD = ["HALTED", "COMMIT", "AUTHOR", "STAGE", "REASON", "REPLACED-BY", "BY"]
HEAD = ["REVISION", "COMMIT", "AUTHOR", "WHEN", "CHANGE-CAUSE", "NODES"]


@dataclass(frozen=True, kw_only=True)
class HistoryArgs(list_options.ScopeArgs, options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds history`."""

    name: str
    number: int | None
    pair: tuple[int, int] | None
    directory: str | None
    sort_by: jsonpath.Path | None
    no_headers: bool
    output: list_options.Output


@click.command()
@click.argument("name", shell_complete=candidates.daemonsets)
@options.option("--revision", "number", type=int, help="Print the pod template of this revision.")
@options.option(
    "--diff", "pair", nargs=2, type=int, help="Compare the pod templates of two revisions."
)
@options.directory_of_commits
@list_options.scope
@list_options.sort_by
@list_options.no_headers
@options.connection
@list_options.output("text", "wide", "json", "yaml", "name")
@options.common
@options.typed(HistoryArgs)
def history(args: HistoryArgs) -> int:
    """List the revisions of a DaemonSet with commit, author, time, change cause and nodes."""
    return options.run(_history(args))


async def _history(args: HistoryArgs) -> int:
    from gitops_ds.commands import history as commands_history
    from gitops_ds.fleet import agents as fleet_agents
    from gitops_ds.model import names, plain_text
    from gitops_ds.model.objects import show_path
    from gitops_ds.plan import diff
    from gitops_ds.redaction import objects

    connection = args.connection()
    async with args.open_cluster() as cluster:
        agents = await fleet_agents.list_agents(cluster, connection.state_namespace, time.time())
    agent = fleet_agents.find_agent(agents, args.name, args.chosen_namespace)
    if args.number is not None:
        revision = commands_history.revision_of(agent, args.number)
        output = list_options.Output("yaml") if args.output.is_table else args.output
        list_options.write(output, objects.value(revision.template), [_name(revision.name)])
        return 0
    if args.pair:
        before, after = (
            commands_history.revision_of(agent, number).template for number in args.pair
        )
        for change in diff.compare(before, after):
            shown = objects.field(agent.key, change)
            path = plain_text.line(show_path(shown.path))
            click.echo(f"{path}: {shown.old!r} -> {shown.new!r}")
        return 0
    items, halts = await _items(agent, args.directory)
    items = list_options.in_order(items, args.sort_by, dict)
    if not args.output.is_table:
        document = {
            "apiVersion": names.API_VERSION,
            "kind": "History",
            "items": items,
            "halts": halts,
        }
        list_options.write(args.output, document, [_name(item["name"]) for item in items])
        return 0
    wide = args.output.is_wide
    head = [*HEAD, "NAME"] if wide else HEAD
    rows = [_row(item, wide=wide) for item in items]
    click.echo(table.columns(head, rows, headers=not args.no_headers), nl=False)
    if halts and not args.no_headers:
        click.echo()
        click.echo(table.columns(HALT_HEAD, [_halt_row(one) for one in halts]), nl=False)
    return 0


def _halt_row(halt: Mapping[str, Any]) -> list[str]:
    from gitops_ds.model.objects import short

    replaced = halt["replacedBy"] or {"commit": "", "author": ""}
    return [
        halt["haltedAt"],
        short(halt["commit"]),
        halt["author"],
        halt["stage"],
        halt["reason"],
        short(replaced["commit"]) if replaced["commit"] else "",
        replaced["author"],
    ]


def _name(revision: str) -> str:
    """The name of a revision as `kubectl -o name` prints it."""
    return f"controllerrevision.apps/{revision}"


def _row(item: Mapping[str, Any], *, wide: bool) -> list[str]:
    from gitops_ds.model.objects import short

    row = [
        str(item["revision"]) + ("*" if item["current"] else ""),
        short(item["commit"]),
        item["author"],
        item["committed"],
        item["changeCause"],
        str(item["nodes"]),
    ]
    return [*row, item["name"]] if wide else row


async def _items(
    agent: Any, directory: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The revisions and the halted rollouts, with authors if Git is available."""
    from gitops_ds import errors
    from gitops_ds.pipeline import open_repository

    named = open_repository.named(directory)
    async with contextlib.AsyncExitStack() as stack:
        repository = None
        if named.where is not None:
            try:
                repository = await stack.enter_async_context(open_repository.opened(named))
                return await _both(agent, repository)
            except errors.SourceError as error:
                options.say(f"authors are unknown: {error}")
        return await _both(agent, None)


async def _both(agent: Any, repository: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from gitops_ds.commands import history as commands_history

    return (
        await commands_history.history(agent, repository),
        await commands_history.halts(agent, repository),
    )
