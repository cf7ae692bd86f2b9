"""`gitops-ds rollback`: writes the commit that restores an earlier pod template."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import wait
from gitops_ds.cli.parameters import candidates, commit_options, formats, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.objects import CommitId, Key
    from gitops_ds.deploy.pipeline.open_repository import RepositoryRef


@dataclass(frozen=True, kw_only=True)
class RollbackArgs(
    commit_options.PullRequestArgs,
    commit_options.CommitArgs,
    options.CommitTargetArgs,
    options.ConnectionArgs,
):
    """The arguments and options of `gitops-ds rollback`."""

    name: str
    to_revision: int | None
    to_commit: str | None
    wait: bool
    timeout: float


@options.command(RollbackArgs)
@click.argument("name", shell_complete=candidates.daemonsets)
@options.option(
    "--to-revision",
    type=int,
    help="The revision to restore; default: the previous revision.",
)
@options.option("--to-commit", metavar="SHA", help="The commit to restore the files of.")
@commit_options.proposal
@commit_options.pull_request
@options.option(
    "--wait", is_flag=True, help="Wait until the pushed commit is applied and rolled out."
)
@options.time_limit("10m", "The time limit of --wait.")
@options.written_to
@options.connection
@formats.output("text", "json")
async def rollback(args: RollbackArgs) -> int:
    """Write the revert commit (or the commit that restores the files) for ds/NAME; without --push
    or --pull-request print it only.
    """
    if args.to_revision is not None and args.to_commit is not None:
        raise click.UsageError("--to-revision and --to-commit exclude each other")
    if args.wait and not args.push:
        raise click.UsageError("--wait requires --push")
    import msgspec

    from gitops_ds.cli.commits import git_commit
    from gitops_ds.cli.rollback import rollback_commit
    from gitops_ds.core import errors
    from gitops_ds.status import agent_lists
    from gitops_ds.status import agents as fleet_agents

    async with args.open_cluster() as cluster:
        scope = agent_lists.AgentScope((args.name,), args.namespace)
        agents = await agent_lists.list_agents(
            cluster, args.state_namespace, time.time(), scope=scope
        )
    agent = fleet_agents.find_agent(agents, args.name, args.namespace)
    fleet_agents.check_in_git(agent)
    target = await git_commit.on_server(args.repository_ref(), args.proposal(args.named_forge()))
    named = target.repository
    request = rollback_commit.RollbackOptions(
        args.to_revision,
        args.to_commit,
        args.reason,
        args.cluster,
        target.proposal,
    )
    done = await rollback_commit.roll_back(named, agent, request)
    way = done.way
    options.say(f"{agent.key} goes back to {done.restored}", quiet=args.quiet)
    commit_options.show(
        args,
        "Rollback",
        done.proposed,
        named.display,
        reverts=way.reverts,
        restores=way.restores,
        restored=msgspec.to_builtins(done.restored),
    )
    if args.wait:
        if done.proposed.pull_request:
            raise errors.Refused("the commit became a pull request: nothing to wait for yet")
        await _wait(args, agent.key, named, done.proposed.commit)
    return 0


async def _wait(args: RollbackArgs, key: Key, named: RepositoryRef, commit: CommitId) -> None:
    """Waits for the rollout of the commit, with its progress."""
    from gitops_ds.cli.wait.by_health import WaitOptions
    from gitops_ds.deploy.pipeline import open_repository

    includes = open_repository.includes(named, commit)
    awaited = WaitOptions(key.name, key.namespace, commit, args.timeout, includes)
    ended = await wait.rolled_out(args, awaited, quiet=args.quiet)
    options.say(f"{key} is rolled out: {ended.health.message}", quiet=args.quiet)
