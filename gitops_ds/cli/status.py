"""`gitops-ds status`: one DaemonSet, its health and its nodes. `gitops-ds wait`: the end of its
rollout.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, list_options, options

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
    output: list_options.Output


@click.command()
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
@list_options.output("text", "json", "yaml", "name")
@options.common
@options.typed(StatusArgs)
async def status(args: StatusArgs) -> int:
    """Show one DaemonSet: its counts, its health and, with --nodes, every node."""
    if not args.name:
        raise click.UsageError(
            "NAME is required: `gitops-ds get` lists the DaemonSets, `gitops-ds sources` the "
            "repositories"
        )

    from gitops_ds.cli.commands import node_work, wait
    from gitops_ds.status import agents as fleet_agents

    async with args.open_cluster() as cluster:
        policy = await node_work.policy_of_service(cluster, args.state_namespace)
        printer = _Printer(args, policy)
        if args.watch:
            which = wait.WaitOptions(args.name, args.chosen_namespace)
            await wait.follow(cluster, args.state_namespace, which, printer.show)
            return 0
        agents = await fleet_agents.list_agents(
            cluster, args.state_namespace, time.time(), options.say
        )
    printer.show(fleet_agents.find_agent(agents, args.name, args.chosen_namespace))
    return 0


class _Printer:
    """Prints an agent, and again when it changed."""

    def __init__(self, args: StatusArgs, policy: StartupTaintPolicy) -> None:
        self._args, self._policy = args, policy
        self._shown: Any = None

    def show(self, agent: Agent | str) -> None:
        """Prints an agent; a message goes to stderr."""
        from gitops_ds.cli.commands import node_work
        from gitops_ds.status import agent_json

        args = self._args
        if isinstance(agent, str):
            options.say(agent)
            return
        if args.output.is_table:
            text = table.agent(agent, time.time(), nodes=args.nodes, headers=not args.no_headers)
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
            list_options.write(args.output, document, [f"daemonset.apps/{agent.key.name}"])
            self._shown = document


@dataclass(frozen=True, kw_only=True)
class WaitArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds wait`."""

    name: str
    commit: str
    timeout: float
    directory: str | None
    namespace: str
    output: str


@click.command()
@click.argument("name", shell_complete=candidates.daemonsets)
@options.option(
    "--commit", metavar="REVISION", default="", help="The commit to wait for; a later one will do."
)
@options.option(
    "--timeout",
    type=options.DurationType(),
    default="10m",
    show_default=True,
    help="The time limit: 90s, 10m.",
)
@options.directory_of_commits
@options.in_namespace
@options.connection
@options.output("text", "json")
@options.common
@options.typed(WaitArgs)
async def wait(args: WaitArgs) -> int:
    """Wait for the rollout of ds/NAME. Exits 0 when it is up to date and available on every
    eligible node, 1 if the rollout failed or timed out.
    """
    from gitops_ds.cli.commands import wait as commands_wait
    from gitops_ds.cli.output import rollout_display
    from gitops_ds.core import plain_text
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.status import agent_json

    commit = await open_repository.commit_named(args.commit, args.directory) if args.commit else ""
    includes = (
        open_repository.includes(open_repository.named(args.directory), commit) if commit else None
    )
    async with args.open_cluster() as cluster:
        with rollout_display.shown(quiet=args.quiet) as display:
            awaited = commands_wait.WaitOptions(
                args.name,
                args.namespace,
                commit,
                args.timeout,
                includes,
                progress=display.progress,
            )
            agent = await commands_wait.wait_for_rollout(
                cluster, args.state_namespace, awaited, display.report
            )
    if args.output == "json":
        options.show_json(options.document("DaemonSetStatus", **agent_json.as_json(agent)))
    else:
        click.echo(plain_text.line(f"{agent.key} is rolled out: {agent.health.message}"))
    return 0
