"""`gitops-ds get` and `status`: DaemonSets, their commits and their health."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import arguments, options, table

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.fleet.agents import Agent


@dataclass(frozen=True, kw_only=True)
class GetArgs(arguments.ConnectionArgs, arguments.CommonArgs):
    """The arguments and options of `gitops-ds get`."""

    resource: str
    namespace: str
    output: str
    all_clusters: bool
    directory: str | None
    path: str


@click.command()
@click.argument(
    "resource", required=False, default="ds", type=click.Choice(["ds", "daemonset", "daemonsets"])
)
@options.in_namespace
@options.option(
    "--all-clusters",
    is_flag=True,
    help="The clusters of the repository in their order, by their reports in Git.",
)
@options.directory
@options.inside
@options.connection
@options.output("text", "wide", "json", "yaml")
@options.common
@arguments.typed(GetArgs)
def get(args: GetArgs) -> int:
    """List DaemonSets as kubectl does, with COMMIT, STAGE and HEALTH, or all clusters."""
    return options.run(_all_clusters(args) if args.all_clusters else _get(args))


async def _all_clusters(args: GetArgs) -> int:
    from gitops_ds.commands import all_clusters
    from gitops_ds.fleet import cluster_overview
    from gitops_ds.model import names
    from gitops_ds.pipeline import open_repository

    rows = await all_clusters.look(open_repository.named(args.directory, args.path))
    if args.output in ("json", "yaml"):
        items = [cluster_overview.as_json(row) for row in rows]
        document = {"apiVersion": names.API_VERSION, "kind": "ClusterReportList", "items": items}
        options.show_json(document) if args.output == "json" else options.show_yaml(document)
        return 0
    click.echo(table.clusters(rows, time.time(), wide=args.output == "wide"), nl=False)
    return 0


async def _get(args: GetArgs) -> int:
    from gitops_ds.fleet import agents as fleet_agents
    from gitops_ds.model import names

    connection = args.connection()
    now = time.time()
    async with args.open_cluster() as cluster:
        agents = await fleet_agents.list_agents(
            cluster, connection.state_namespace, now, options.say
        )
    agents = tuple(agent for agent in agents if args.namespace in ("", agent.key.namespace))
    if args.output in ("json", "yaml"):
        document = {
            "apiVersion": names.API_VERSION,
            "kind": "DaemonSetStatusList",
            "items": [fleet_agents.as_json(agent) for agent in agents],
        }
        options.show_json(document) if args.output == "json" else options.show_yaml(document)
        return 0
    wide = args.output == "wide"
    click.echo(table.fleet(agents, now, wide=wide), nl=False)
    if not wide:
        for line in table.apart(agents):
            options.say(line, quiet=args.quiet)
    return 0


@dataclass(frozen=True, kw_only=True)
class StatusArgs(arguments.ConnectionArgs, arguments.CommonArgs):
    """The arguments and options of `gitops-ds status`."""

    name: str | None
    nodes: bool
    watch: bool
    namespace: str
    output: str


@click.command()
@click.argument("name", required=False)
@options.option("--nodes", is_flag=True, help="One line per node.")
@options.option("--watch", is_flag=True, help="Print again after each change.")
@options.in_namespace
@options.connection
@options.output("text", "json", "yaml")
@options.common
@arguments.typed(StatusArgs)
def status(args: StatusArgs) -> int:
    """Show one DaemonSet: its counts, its health and, with --nodes, every node."""
    return options.run(_status(args))


async def _status(args: StatusArgs) -> int:
    if not args.name:
        raise click.UsageError(
            "NAME is required: `gitops-ds get` lists the DaemonSets, `gitops-ds sources` the "
            "repositories"
        )

    from gitops_ds.commands import wait
    from gitops_ds.fleet import agents as fleet_agents

    connection = args.connection()
    async with args.open_cluster() as cluster:
        if args.watch and args.output == "text":
            which = wait.WaitOptions(args.name, args.namespace)
            await wait.follow(
                cluster, connection.state_namespace, which, _Printer(nodes=args.nodes).show
            )
            return 0
        agents = await fleet_agents.list_agents(
            cluster, connection.state_namespace, time.time(), options.say
        )
    agent = fleet_agents.find_agent(agents, args.name, args.namespace)
    if args.output == "text":
        _Printer(nodes=args.nodes).show(agent)
        return 0
    document = {**fleet_agents.as_json(agent), "nodes": fleet_agents.nodes(agent)}
    options.show_json(document) if args.output == "json" else options.show_yaml(document)
    return 0


class _Printer:
    """Prints an agent, and again when its text changed."""

    def __init__(self, *, nodes: bool) -> None:
        self._nodes, self._shown = nodes, ""

    def show(self, agent: Agent | str) -> None:
        """An agent as text; a message goes to stderr."""
        if isinstance(agent, str):
            options.say(agent)
            return
        text = table.agent(agent, time.time(), nodes=self._nodes)
        if text != self._shown:
            click.echo(text, nl=False)
            self._shown = text
