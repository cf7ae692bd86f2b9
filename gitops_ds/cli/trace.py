"""`gitops-ds trace`: the commit, author and line of a pod."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, options


@dataclass(frozen=True, kw_only=True)
class TraceArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds trace`."""

    what: str
    directory: str | None
    path: str
    namespace: str
    output: str


@click.command()
@click.argument("what", shell_complete=candidates.traced)
@options.directory_of_commits
@options.inside
@options.in_namespace
@options.connection
@options.output("text", "json", "yaml")
@options.common
@options.typed(TraceArgs)
def trace(args: TraceArgs) -> int:
    """Show pod, node, revision, commit, author, file and line for pod/NAME, node/NAME, ds/NAME or
    commit/SHA.
    """
    return options.run(_trace(args))


async def _trace(args: TraceArgs) -> int:
    from gitops_ds.commands import history as commands_trace
    from gitops_ds.fleet import agents as fleet_agents

    kind, name = commands_trace.parse_target(args.what)
    connection = args.connection()
    async with args.open_cluster() as cluster:
        agents = await fleet_agents.list_agents(cluster, connection.state_namespace, time.time())
    items = await _items(commands_trace.found(agents, kind, name, args.namespace), args)
    if args.output != "text":
        document = {"apiVersion": "gitops-ds.io/v1", "kind": "Trace", "items": items}
        options.show_json(document) if args.output == "json" else options.show_yaml(document)
        return 0
    head = [
        "NODE",
        "AGENT",
        "POD",
        "STATE",
        "REVISION",
        "COMMIT",
        "AUTHOR",
        "WHEN",
        "CHANGE-CAUSE",
        "FILE",
    ]
    click.echo(table.columns(head, [_row(item) for item in items]), nl=False)
    return 0


def _row(item: dict[str, Any]) -> list[str]:
    from gitops_ds.model.objects import short

    agent, revision = (
        f"{item['agent']['namespace']}/{item['agent']['name']}",
        str(item["revision"] or ""),
    )
    file = f"{item['file']}:{item['line']}" if item["line"] else item["file"]
    state = item["reason"] or item["state"]
    return [
        *(item["node"], agent, item["pod"], state, revision),
        *(short(item["commit"]), item["author"], item["committed"], item["changeCause"], file),
    ]


async def _items(entries: Any, args: TraceArgs) -> list[dict[str, Any]]:
    from gitops_ds import errors
    from gitops_ds.commands import history as commands_trace
    from gitops_ds.pipeline import open_repository

    named = open_repository.named(args.directory, args.path)
    if named.where is None:
        return await commands_trace.traced(entries, commands_trace.CommitLookup())
    try:
        async with open_repository.opened(named) as repository:
            return await commands_trace.traced(
                entries, commands_trace.CommitLookup(repository, named.path)
            )
    except errors.SourceError as error:
        options.say(f"authors are unknown: {error}")
        return await commands_trace.traced(entries, commands_trace.CommitLookup())
