"""`gitops-ds rollback`: a commit that restores an earlier pod template. Git is the only way
back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from gitops_ds.cli import arguments, candidates, commit_options, options


@dataclass(frozen=True, kw_only=True)
class RollbackArgs(
    commit_options.PullRequestArgs,
    commit_options.CommitArgs,
    arguments.CommitTargetArgs,
    arguments.ConnectionArgs,
    arguments.CommonArgs,
):
    """The arguments and options of `gitops-ds rollback`."""

    name: str
    to_revision: int | None
    to_commit: str | None
    output: str


@click.command()
@click.argument("name", shell_complete=candidates.daemonsets)
@options.option(
    "--to-revision",
    type=int,
    help="The revision to restore; default: the previous revision.",
)
@options.option("--to-commit", metavar="SHA", help="The commit to restore the files of.")
@commit_options.proposal
@commit_options.pull_request
@options.written_to
@options.connection
@options.output("text", "json")
@options.common
@arguments.typed(RollbackArgs)
def rollback(args: RollbackArgs) -> int:
    """Write the revert commit (or the commit that restores the files) for ds/NAME; without --push
    or --pull-request print it only.
    """
    if args.to_revision is not None and args.to_commit is not None:
        raise click.UsageError("--to-revision and --to-commit exclude each other")
    return options.run(_rollback(args))


async def _rollback(args: RollbackArgs) -> int:
    from gitops_ds.commands import git_commit
    from gitops_ds.commands import rollback as commands_rollback
    from gitops_ds.fleet import agents as fleet_agents

    connection = args.connection()
    async with args.open_cluster() as cluster:
        agents = await fleet_agents.list_agents(cluster, connection.state_namespace, time.time())
    agent = fleet_agents.find_agent(agents, args.name, args.namespace)
    fleet_agents.check_in_git(agent)
    target = await git_commit.on_server(args.repository_ref(), args.proposal(args.named_forge()))
    named = target.repository
    request = commands_rollback.RollbackOptions(
        args.to_revision,
        args.to_commit,
        args.reason,
        args.cluster,
        target.proposal,
    )
    done = await commands_rollback.roll_back(named, agent, request)
    way = done.way
    commit_options.show(
        args, "Rollback", done.proposed, named.display, reverts=way.reverts, restores=way.restores
    )
    return 0
