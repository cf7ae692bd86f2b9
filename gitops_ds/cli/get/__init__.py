"""`gitops-ds get`: DaemonSets, their commits and their health; the nodes, with the agents that they
wait for; or the clusters of a repository.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, formats, list_options, options
from gitops_ds.core.values import replace

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.objects import Key
    from gitops_ds.core.sources.bundle import Requirement
    from gitops_ds.core.startup_taints import StartupTaintPolicy
    from gitops_ds.kube.apimachinery import jsonpath
    from gitops_ds.status.agent_lists import AgentScope
    from gitops_ds.status.agents import Agent

_NODE_WORDS = frozenset(("no", "node", "nodes"))


@dataclass(frozen=True, kw_only=True)
class GetArgs(list_options.ScopeArgs, options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds get`."""

    what: tuple[str, ...]
    selector: tuple[Requirement, ...]
    watch: bool
    sort_by: jsonpath.Path | None
    no_headers: bool
    output: formats.Output
    all_clusters: bool
    settings: str | None
    directory: str | None
    path: str

    @property
    def names(self) -> tuple[str, ...]:
        """The chosen DaemonSets, without the word for their kind; none for all."""
        from gitops_ds.status import agents

        first = self.what[0].lower() if self.what else ""
        return self.what[1:] if first in agents.KIND_WORDS or self.of_nodes else self.what

    @property
    def scope(self) -> AgentScope:
        """The DaemonSets that may be selected."""
        from gitops_ds.status.agent_lists import MANY_PODS, AgentScope

        is_table = self.output.is_table and self.sort_by is None
        return AgentScope(self.names, self.chosen_namespace, MANY_PODS if is_table else None)

    @property
    def of_nodes(self) -> bool:
        """Whether nodes are requested."""
        return bool(self.what) and self.what[0].lower() in _NODE_WORDS


@options.command(GetArgs)
@click.argument("what", nargs=-1, metavar="[NAME]...", shell_complete=candidates.daemonset_words)
@list_options.scope
@list_options.selector
@options.option("-w", "--watch", is_flag=True, help="Print each DaemonSet again after a change.")
@list_options.sort_by
@list_options.no_headers
@options.option(
    "--all-clusters",
    is_flag=True,
    help="The clusters of the repository in their order, by their reports in Git.",
)
@options.option(
    "--settings",
    shell_complete=candidates.files,
    help="The settings file of a service: --all-clusters counts signed reports only, as it does; "
    "nodes wait by its startupTaints.",
)
@options.directory
@options.inside
@options.connection
@formats.output("text", "wide", "json", "yaml", "name", jsonpath=True)
async def get(args: GetArgs) -> int:
    """List DaemonSets as kubectl does, with COMMIT, STAGE and HEALTH, or all clusters.

    NAME is a name, ds/NAME, or the word ds before names; default: all DaemonSets. After the word
    nodes it is a node: lists the nodes, and the required agents that they wait for.
    """
    if args.all_clusters and (args.watch or args.selector or args.what):
        raise click.UsageError("--all-clusters excludes NAME, --selector and --watch")
    if args.settings and not (args.all_clusters or args.of_nodes):
        raise click.UsageError("--settings needs --all-clusters or nodes")
    if args.of_nodes and args.watch:
        raise click.UsageError("nodes and --watch exclude each other")
    if args.names and args.selector:
        raise click.UsageError("NAME and --selector exclude each other")
    if args.watch and args.sort_by:
        raise click.UsageError("--watch and --sort-by exclude each other")
    work = _all_clusters if args.all_clusters else _watch if args.watch else _get
    return await (_nodes if args.of_nodes else work)(args)


async def _all_clusters(args: GetArgs) -> int:
    from gitops_ds.cli.get import all_clusters, tables
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.status import cluster_reports

    repository, trust = open_repository.named(args.directory, args.path), all_clusters.NO_TRUST
    if args.settings:
        trust = all_clusters.trust_in(args.settings, repository)
    cluster_rows = await all_clusters.read(repository, trust)
    rows = list_options.in_order(cluster_rows, args.sort_by, cluster_reports.as_json)
    if not args.output.is_table:
        items = [cluster_reports.as_json(row) for row in rows]
        document = formats.document("ClusterReportList", items=items)
        formats.write(args.output, document, [f"cluster/{row.name}" for row in rows])
        return 0
    wide, headers = args.output.is_wide, not args.no_headers
    text = tables.clusters(rows, time.time(), wide=wide, headers=headers)
    click.echo(table.coloured(text), nl=False)
    if any(row.unverified for row in rows):
        options.say(
            "note: signatures are not verified; --settings FILE verifies them", quiet=args.quiet
        )
    return 0


async def _nodes(args: GetArgs) -> int:
    from gitops_ds.cli.get import node_work, tables
    from gitops_ds.core.errors import NoMatch
    from gitops_ds.kube.apimachinery import label_selector

    policy, now = _policy(args.settings), time.time()
    async with args.open_cluster() as cluster:
        nodes = await node_work.read(cluster, args.state_namespace, policy, now)
    if missing := set(args.names) - {node.node.name for node in nodes}:
        raise NoMatch(f"there is no node {sorted(missing)[0]}")
    chosen = [node for node in nodes if not args.names or node.node.name in args.names]
    chosen = [node for node in chosen if label_selector.all_match(args.selector, node.node.labels)]
    rows = list_options.in_order(chosen, args.sort_by, node_work.as_json)
    if not args.output.is_table:
        items = [node_work.as_json(row) for row in rows]
        document = formats.document("NodeWorkList", items=items)
        formats.write(args.output, document, [f"node/{row.node.name}" for row in rows])
        return 0
    click.echo(table.coloured(tables.nodes(rows, now, headers=not args.no_headers)), nl=False)
    return 0


def _policy(settings: str | None) -> StartupTaintPolicy | None:
    """The startup taints of a settings file; None without it."""
    from gitops_ds.service.settings import service

    group = service.read(settings).startup_taints if settings else None
    return group.policy if group else None


async def _get(args: GetArgs) -> int:
    from gitops_ds.cli.get import tables
    from gitops_ds.status import agent_json, agent_lists

    now = time.time()
    async with args.open_cluster() as cluster:
        agents = await agent_lists.list_agents(
            cluster, args.state_namespace, now, options.say, args.scope
        )
    chosen = list_options.in_order(_selected(args, agents), args.sort_by, agent_json.as_json)
    if not args.output.is_table:
        document = _document(chosen, single=len(args.names) == 1 and len(chosen) == 1)
        formats.write(args.output, document, [_name(agent) for agent in chosen])
        return 0
    wide = args.output.is_wide
    text = tables.agents_table(chosen, now, wide=wide, headers=not args.no_headers)
    click.echo(table.coloured(text), nl=False)
    if not wide:
        for line in tables.apart(chosen):
            options.say(line, quiet=args.quiet)
    return 0


def _selected(args: GetArgs, agents: tuple[Agent, ...]) -> tuple[Agent, ...]:
    """The agents with the names, in the namespace, with the labels of the options. Raises NoMatch
    for a name without an agent.
    """
    from gitops_ds.kube.apimachinery import label_selector
    from gitops_ds.status import agents as fleet_agents

    def labels(agent: Agent) -> Mapping[str, str]:
        return (agent.seen.daemonset.raw.get("metadata") or {}).get("labels") or {}

    chosen = fleet_agents.select_agents(agents, args.names, args.chosen_namespace)
    return tuple(
        agent for agent in chosen if label_selector.all_match(args.selector, labels(agent))
    )


def _name(agent: Agent) -> str:
    """The name of an agent as `kubectl -o name` prints it."""
    return f"daemonset.apps/{agent.key.name}"


def _document(agents: Sequence[Agent], *, single: bool) -> dict[str, Any]:
    """The JSON of one agent, or of a list, as kubectl prints an object for one name."""
    from gitops_ds.status import agent_json

    items = [agent_json.as_json(agent) for agent in agents]
    if single:
        return formats.document("DaemonSetStatus", **items[0])
    return formats.document("DaemonSetStatusList", items=items)


async def _watch(args: GetArgs) -> int:
    from gitops_ds.cli.wait import watched_agents
    from gitops_ds.status import agent_lists

    printer = _ChangePrinter(args)
    scope = agent_lists.AgentScope(args.names, args.chosen_namespace)
    watch = watched_agents.WatchOptions(args.state_namespace, time.time, options.say, scope)
    async with args.open_cluster() as cluster:
        await watched_agents.follow(cluster, watch, printer.show)
    return 0


class _ChangePrinter:
    """Prints the selected agents, then those that changed; the age of an agent does not count as a
    change.
    """

    def __init__(self, args: GetArgs) -> None:
        self._args = args
        self._shown: dict[Key, Any] = {}
        self._started = False

    def show(self, agents: tuple[Agent, ...]) -> None:
        """Prints the agents that differ from those printed before. The first time, raises NoMatch
        for a name without an agent.
        """
        from gitops_ds.status import agent_json
        from gitops_ds.status import agents as fleet_agents

        args = self._args
        if self._started:  # an agent that is deleted may return
            names_now = {agent.key.name for agent in agents}
            names = tuple(name for name in args.names if fleet_agents.name_of(name) in names_now)
            if args.names and not names:
                agents = ()
            args = replace(args, what=("ds", *names))
        chosen = _selected(args, agents)
        documents = {agent.key: agent_json.as_json(agent) for agent in chosen}
        changed = [agent for agent in chosen if documents[agent.key] != self._shown.get(agent.key)]
        self._shown = documents
        if args.output.is_table:
            self._print_rows(chosen, changed)
        else:
            for agent in changed:
                formats.write(args.output, _document([agent], single=True), [_name(agent)])
        self._started = True

    def _print_rows(self, agents: Sequence[Agent], changed: Sequence[Agent]) -> None:
        args = self._args
        if (not self._started and not args.no_headers) or changed:
            from gitops_ds.cli.get import tables

            # all rows determine the widths
            text = tables.agents_table(agents, time.time(), wide=args.output.is_wide).splitlines()
            rows = [row for agent, row in zip(agents, text[1:], strict=False) if agent in changed]
            head = text[:1] if not self._started and not args.no_headers else []
            lines = "".join(f"{line}\n" for line in (*head, *rows))
            click.echo(table.coloured(lines), nl=False)
