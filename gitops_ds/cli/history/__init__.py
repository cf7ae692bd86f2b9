"""`gitops-ds history`: the ControllerRevisions of a DaemonSet with their commits."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, formats, list_options, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.deploy.pipeline.open_repository import RepositoryRef
    from gitops_ds.kube.apimachinery import jsonpath
    from gitops_ds.source.git.repository import Repository


T = TypeVar("T")
HALT_HEAD = ["HALTED", "COMMIT", "AUTHOR", "STAGE", "REASON", "REPLACED-BY", "BY"]
HEAD = ["REVISION", "COMMIT", "AUTHOR", "WHEN", "CHANGE-CAUSE", "NODES"]


@dataclass(frozen=True, kw_only=True)
class HistoryArgs(list_options.ScopeArgs, options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds history`."""

    name: str
    number: int | None
    pair: tuple[int, int] | None
    limit: int | None
    directory: str | None
    sort_by: jsonpath.Path | None
    no_headers: bool
    output: formats.Output


@options.command(HistoryArgs)
@click.argument("name", shell_complete=candidates.daemonsets)
@options.option("--revision", "number", type=int, help="Print the pod template of this revision.")
@options.option(
    "--diff", "pair", nargs=2, type=int, help="Compare the pod templates of two revisions."
)
@options.option(
    "--limit", type=click.IntRange(min=1), help="Only the newest revisions, and the newest halts."
)
@options.directory_of_commits
@list_options.scope
@list_options.sort_by
@list_options.no_headers
@options.connection
@formats.output("text", "wide", "json", "yaml", "name", jsonpath=True)
async def history(args: HistoryArgs) -> int:
    """List the revisions of a DaemonSet with commit, author, time, change cause and nodes."""
    from gitops_ds.cli.history import revision_history
    from gitops_ds.core import plain_text
    from gitops_ds.core.objects import show_path
    from gitops_ds.core.redaction import objects
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.ownership import diff
    from gitops_ds.status import agent_lists
    from gitops_ds.status import agents as fleet_agents

    async with args.open_cluster() as cluster:
        scope = agent_lists.AgentScope((args.name,), args.chosen_namespace)
        agents = await agent_lists.list_agents(
            cluster, args.state_namespace, time.time(), scope=scope
        )
    agent = fleet_agents.find_agent(agents, args.name, args.chosen_namespace)
    if args.number is not None:
        revision = revision_history.revision_of(agent, args.number)
        output = formats.Output("yaml") if args.output.is_table else args.output
        formats.write(output, objects.value(revision.template), [_name(revision.name)])
        return 0
    if args.pair:
        before, after = (
            revision_history.revision_of(agent, number).template for number in args.pair
        )
        for change in diff.compare(before, after):
            shown = objects.field(agent.key, change)
            path = plain_text.line(show_path(shown.path))
            click.echo(f"{path}: {shown.old!r} -> {shown.new!r}")
        return 0

    async def listed(repository: Repository | None) -> tuple[list[Any], list[Any]]:
        return (
            await revision_history.history(agent, repository),
            await revision_history.halts(agent, repository),
        )

    items, halts = await with_authors(open_repository.named(args.directory), listed)
    newest = slice(-args.limit if args.limit else None, None)
    items, halts = list_options.in_order(items[newest], args.sort_by, dict), halts[newest]
    if not args.output.is_table:
        document = formats.document("History", items=items, halts=halts)
        formats.write(args.output, document, [_name(item["name"]) for item in items])
        return 0
    wide = args.output.is_wide
    head = [*HEAD, "NAME"] if wide else HEAD
    rows = [_row(item, wide=wide) for item in items]
    click.echo(table.columns(head, rows, headers=not args.no_headers), nl=False)
    if halts and not args.no_headers:
        click.echo()
        click.echo(table.columns(HALT_HEAD, [_halt_row(halt) for halt in halts]), nl=False)
    return 0


def _halt_row(halt: Mapping[str, Any]) -> list[str]:
    from gitops_ds.core.objects import short

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
    from gitops_ds.core.objects import short

    row = [
        str(item["revision"]) + ("*" if item["current"] else ""),
        short(item["commit"]),
        item["author"],
        item["committed"],
        item["changeCause"],
        str(item["nodes"]),
    ]
    return [*row, item["name"]] if wide else row


async def with_authors(
    named: RepositoryRef, work: Callable[[Repository | None], Awaitable[T]]
) -> T:
    """The result of the work on the repository; of None if it can't be read."""
    from gitops_ds.core import errors
    from gitops_ds.deploy.pipeline import open_repository

    if named.where is not None:
        try:
            async with open_repository.opened(named) as repository:
                return await work(repository)
        except errors.SourceError as error:
            options.say(f"authors are unknown: {error}")
    return await work(None)
