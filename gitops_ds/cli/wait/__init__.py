"""`gitops-ds wait`: waits for the end of the rollout of a DaemonSet."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, options


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
    from gitops_ds.cli.output import rollout_display
    from gitops_ds.cli.wait import rollout_by_health
    from gitops_ds.core import plain_text
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.status import agent_json

    commit = await open_repository.commit_named(args.commit, args.directory) if args.commit else ""
    includes = (
        open_repository.includes(open_repository.named(args.directory), commit) if commit else None
    )
    async with args.open_cluster() as cluster:
        with rollout_display.shown(quiet=args.quiet) as display:
            awaited = rollout_by_health.WaitOptions(
                args.name,
                args.namespace,
                commit,
                args.timeout,
                includes,
                progress=display.progress,
            )
            agent = await rollout_by_health.wait_for_rollout(
                cluster, args.state_namespace, awaited, display.report
            )
    if args.output == "json":
        options.show_json(options.document("DaemonSetStatus", **agent_json.as_json(agent)))
    else:
        click.echo(plain_text.line(f"{agent.key} is rolled out: {agent.health.message}"))
    return 0
