"""`gitops-ds history`: Git joined with ControllerRevisions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from gitops_ds.cli import arguments, options, table


@dataclass(frozen=True, kw_only=True)
class HistoryArgs(arguments.ConnectionArgs, arguments.CommonArgs):
    """The arguments and options of `gitops-ds history`."""

    name: str
    number: int | None
    pair: tuple[int, int] | None
    directory: str | None
    namespace: str
    output: str


@click.command()
@click.argument("name")
@options.option("--revision", "number", type=int, help="Print the pod template of this revision.")
@options.option(
    "--diff", "pair", nargs=2, type=int, help="Compare the pod templates of two revisions."
)
@options.option(
    "-C",
    "--repository",
    "directory",
    help="The repository of the commits; default: the Git work tree around the current directory.",
)
@options.in_namespace
@options.connection
@options.output("text", "json", "yaml")
@options.common
@arguments.typed(HistoryArgs)
def history(args: HistoryArgs) -> int:
    """List the revisions of a DaemonSet with commit, author, time, change cause and nodes."""
    return options.run(_history(args))


async def _history(args: HistoryArgs) -> int:
    from gitops_ds.commands import history as commands_history
    from gitops_ds.fleet import agents as fleet_agents
    from gitops_ds.model import names
    from gitops_ds.model.objects import short, show_path
    from gitops_ds.plan import diff
    from gitops_ds.redaction import objects

    connection = args.connection()
    async with args.open_cluster() as cluster:
        agents = await fleet_agents.list_agents(cluster, connection.state_namespace, time.time())
    agent = fleet_agents.find_agent(agents, args.name, args.namespace)
    if args.number is not None:
        template = objects.value(commands_history.revision_of(agent, args.number).template)
        options.show_json(template) if args.output == "json" else options.show_yaml(template)
        return 0
    if args.pair:
        before, after = (
            commands_history.revision_of(agent, number).template for number in args.pair
        )
        for change in diff.compare(before, after):
            shown = objects.field(agent.key, change)
            click.echo(f"{show_path(shown.path)}: {shown.old!r} -> {shown.new!r}")
        return 0
    items = await _items(agent, args.directory)
    if args.output != "text":
        document = {"apiVersion": names.API_VERSION, "kind": "History", "items": items}
        options.show_json(document) if args.output == "json" else options.show_yaml(document)
        return 0
    head = ["REVISION", "COMMIT", "AUTHOR", "WHEN", "CHANGE-CAUSE", "NODES"]
    rows = [
        [
            str(i["revision"]) + ("*" if i["current"] else ""),
            short(i["commit"]),
            i["author"],
            i["committed"],
            i["changeCause"],
            str(i["nodes"]),
        ]
        for i in items
    ]
    click.echo(table.columns(head, rows), nl=False)
    return 0


async def _items(agent: Any, directory: str | None) -> list[dict[str, Any]]:
    from gitops_ds import errors
    from gitops_ds.commands import history as commands_history
    from gitops_ds.pipeline import open_repository

    named = open_repository.named(directory)
    if named.where is None:
        return await commands_history.history(agent, None)
    try:
        async with open_repository.opened(named) as repository:
            return await commands_history.history(agent, repository)
    except errors.SourceError as error:
        options.say(f"authors are unknown: {error}")
        return await commands_history.history(agent, None)
