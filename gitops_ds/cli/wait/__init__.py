"""`gitops-ds wait`: waits for the end of the rollout of a DaemonSet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, formats, options
from gitops_ds.core.values import replace

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.wait.by_health import WaitOptions
    from gitops_ds.status.agents import Agent


@dataclass(frozen=True, kw_only=True)
class WaitArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds wait`."""

    name: str
    commit: str
    timeout: float
    directory: str | None
    namespace: str
    output: formats.Output


@options.command(WaitArgs)
@click.argument("name", shell_complete=candidates.daemonsets)
@options.option(
    "--commit", metavar="REVISION", default="", help="The commit to wait for; a later one will do."
)
@options.time_limit("10m", "The time limit: 90s, 10m.")
@options.directory_of_commits
@options.in_namespace
@options.connection
@formats.output("text", "json")
async def wait(args: WaitArgs) -> int:
    """Wait for the rollout of ds/NAME. Exits 0 when it is up to date and available on every
    eligible node, 1 if the rollout failed or timed out.
    """
    from gitops_ds.cli.wait.by_health import WaitOptions
    from gitops_ds.core import plain_text
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.status import agent_json

    commit = await open_repository.commit_named(args.commit, args.directory) if args.commit else ""
    includes = (
        open_repository.includes(open_repository.named(args.directory), commit) if commit else None
    )
    awaited = WaitOptions(args.name, args.namespace, commit, args.timeout, includes)
    agent = await rolled_out(args, awaited, quiet=args.quiet)
    if args.output == "json":
        formats.show_json(formats.document("DaemonSetStatus", **agent_json.as_json(agent)))
    else:
        click.echo(plain_text.line(f"{agent.key} is rolled out: {agent.health.message}"))
    return 0


async def rolled_out(args: options.ConnectionArgs, awaited: WaitOptions, *, quiet: bool) -> Agent:
    """The agent at the end of its rollout, whose progress is shown on stderr."""
    from gitops_ds.cli.output import rollout_display
    from gitops_ds.cli.wait import by_health

    async with args.open_cluster() as cluster:
        with rollout_display.shown(quiet=quiet) as display:
            awaited = replace(awaited, progress=display.progress)
            return await by_health.wait_for_rollout(
                cluster, args.state_namespace, awaited, display.report
            )
