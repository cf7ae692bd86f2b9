"""`gitops-ds trace`: the commit, author and line of a pod."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import history
from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, formats, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.source.git.repository import Repository


HEAD = [
    *("NODE", "AGENT", "POD", "STATE", "REVISION"),
    *("COMMIT", "AUTHOR", "WHEN", "CHANGE-CAUSE", "FILE"),
]


@dataclass(frozen=True, kw_only=True)
class TraceArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds trace`."""

    what: str
    directory: str | None
    path: str
    namespace: str
    output: formats.Output


@options.command(TraceArgs)
@click.argument("what", shell_complete=candidates.traced)
@options.directory_of_commits
@options.inside
@options.in_namespace
@options.connection
@formats.output("text", "json", "yaml")
async def trace(args: TraceArgs) -> int:
    """Show pod, node, revision, commit, author, file and line for pod/NAME, node/NAME, ds/NAME or
    commit/SHA.
    """
    from gitops_ds.cli.trace import traced_pods
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.status import agent_lists

    kind, name = traced_pods.parse_target(args.what)
    async with args.open_cluster() as cluster:
        scope = await traced_pods.scope_of(cluster, kind, name, args.namespace)
        agents = await agent_lists.list_agents(
            cluster, args.state_namespace, time.time(), scope=scope
        )
    named = open_repository.named(args.directory, args.path)
    found = traced_pods.found(agents, kind, name, args.namespace)

    async def traced(repository: Repository | None) -> list[dict[str, Any]]:
        return await traced_pods.traced(found, repository, named.path)

    items = await history.with_authors(named, traced)
    if not args.output.is_table:
        formats.write(args.output, formats.document("Trace", items=items))
        return 0
    click.echo(table.columns(HEAD, [_trace_row(item) for item in items]), nl=False)
    return 0


def _trace_row(item: dict[str, Any]) -> list[str]:
    from gitops_ds.core.objects import short

    agent = f"{item['agent']['namespace']}/{item['agent']['name']}"
    file = f"{item['file']}:{item['line']}" if item["line"] else item["file"]
    state = item["reason"] or item["state"]
    return [
        *(item["node"], agent, item["pod"], state, str(item["revision"] or "")),
        *(short(item["commit"]), item["author"], item["committed"], item["changeCause"], file),
    ]
