"""`gitops-ds status`: one DaemonSet, its health and its nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, formats, list_options, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.startup_taints import StartupTaintPolicy
    from gitops_ds.status.agents import Agent


@dataclass(frozen=True, kw_only=True)
class StatusArgs(list_options.ScopeArgs, options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds status`."""

    name: str | None
    nodes: bool
    watch: bool
    no_headers: bool
    output: formats.Output

    def agent_of(self, agents: tuple[Agent, ...]) -> tuple[Agent]:
        """The chosen agent. Raises NoMatch without it."""
        from gitops_ds.status import agents as fleet_agents

        return (fleet_agents.find_agent(agents, self.name or "", self.chosen_namespace),)


@options.command(StatusArgs)
@click.argument("name", required=False, shell_complete=candidates.daemonsets)
@options.option(
    "--nodes",
    is_flag=True,
    help="One line per node, and the nodes that get no pod, with the reason.",
)
@options.option("-w", "--watch", is_flag=True, help="Print again after each change.")
@list_options.scope
@list_options.no_headers
@options.connection
@formats.output("text", "json", "yaml", "name", jsonpath=True)
async def status(args: StatusArgs) -> int:
    """Show one DaemonSet: its counts, its health and, with --nodes, every node."""
    if not args.name:
        raise click.UsageError(
            "NAME is required: `gitops-ds get` lists the DaemonSets, `gitops-ds sources` the "
            "repositories"
        )

    from gitops_ds.cli.get import node_work
    from gitops_ds.cli.wait import watched_agents
    from gitops_ds.status import agent_lists

    scope = agent_lists.AgentScope((args.name,), args.chosen_namespace)
    async with args.open_cluster() as cluster:
        policy = await node_work.policy_of_service(cluster, args.state_namespace)
        printer = _Printer(args, policy)
        if args.watch:
            watch = watched_agents.WatchOptions(args.state_namespace, time.time, options.say, scope)
            await watched_agents.follow(cluster, watch, printer.show, args.agent_of)
            return 0
        agents = await agent_lists.list_agents(
            cluster,
            args.state_namespace,
            time.time(),
            options.say,
            scope,
        )
    printer.show(args.agent_of(agents))
    return 0


class _Printer:
    """Prints an agent, and again when it changed."""

    def __init__(self, args: StatusArgs, policy: StartupTaintPolicy) -> None:
        self._args, self._policy = args, policy
        self._shown: Any = None

    def show(self, agents: tuple[Agent, ...]) -> None:
        """Prints the agent."""
        from gitops_ds.cli.get import node_work
        from gitops_ds.cli.status import agent_text
        from gitops_ds.status import agent_json

        args, (agent,) = self._args, agents
        if args.output.is_table:
            headers = not args.no_headers
            text = agent_text.text_of(agent, time.time(), nodes=args.nodes, headers=headers)
            if text != self._shown:
                click.echo(table.coloured(text), nl=False)
                self._shown = text
            return
        document = {
            **agent_json.as_json(agent),
            "nodes": agent_json.nodes(agent),
            "waits": node_work.of_agent(agent.seen, agent.state, self._policy),
        }
        if document != self._shown:
            formats.write(args.output, document, [f"daemonset.apps/{agent.key.name}"])
            self._shown = document
