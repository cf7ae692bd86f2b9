"""The commands that write a commit: `rollback` restores an earlier pod template, `restart` restarts
the pods, and `drift` shows drift of the cluster and keeps it. Git is the only way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, commit_options, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.change import Drifted
    from gitops_ds.core.objects import CommitId, Key
    from gitops_ds.deploy.pipeline.open_repository import RepositoryRef
    from gitops_ds.status.agents import Agent


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
@options.option(
    "--wait", is_flag=True, help="Wait until the pushed commit is applied and rolled out."
)
@options.option(
    "--timeout",
    type=options.DurationType(),
    default="10m",
    show_default=True,
    help="The time limit of --wait.",
)
@options.written_to
@options.connection
@options.output("text", "json")
@options.common
@options.typed(RollbackArgs)
async def rollback(args: RollbackArgs) -> int:
    """Write the revert commit (or the commit that restores the files) for ds/NAME; without --push
    or --pull-request print it only.
    """
    if args.to_revision is not None and args.to_commit is not None:
        raise click.UsageError("--to-revision and --to-commit exclude each other")
    if args.wait and not args.push:
        raise click.UsageError("--wait requires --push")
    import msgspec

    from gitops_ds.cli.commands.commits import git_commit
    from gitops_ds.cli.commands.commits import rollback as commands_rollback
    from gitops_ds.core import errors
    from gitops_ds.status import agents as fleet_agents

    async with args.open_cluster() as cluster:
        agents = await fleet_agents.list_agents(cluster, args.state_namespace, time.time())
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
        await _wait(args, agent, named, done.proposed.commit)
    return 0


async def _wait(args: RollbackArgs, agent: Agent, named: RepositoryRef, commit: CommitId) -> None:
    """Waits for the rollout of the commit, with its progress."""
    from gitops_ds.cli.commands import wait
    from gitops_ds.cli.output import rollout_display
    from gitops_ds.deploy.pipeline import open_repository

    key, includes = agent.key, open_repository.includes(named, commit)
    async with args.open_cluster() as cluster:
        with rollout_display.shown(quiet=args.quiet) as display:
            awaited = wait.WaitOptions(
                key.name, key.namespace, commit, args.timeout, includes, progress=display.progress
            )
            ended = await wait.wait_for_rollout(
                cluster, args.state_namespace, awaited, display.report
            )
    options.say(f"{key} is rolled out: {ended.health.message}", quiet=args.quiet)


@dataclass(frozen=True, kw_only=True)
class RestartArgs(commit_options.CommitArgs, options.CommitTargetArgs):
    """The arguments and options of `gitops-ds restart`."""

    name: str


@click.command()
@click.argument("name", shell_complete=candidates.daemonsets)
@commit_options.proposal
@options.written_to
@options.output("text", "json")
@options.common
@options.typed(RestartArgs)
async def restart(args: RestartArgs) -> int:
    """Write the commit that restarts ds/NAME as `kubectl rollout restart` does; without --push
    print it only.
    """
    from gitops_ds.cli.commands.commits import git_commit
    from gitops_ds.cli.commands.commits import restart as commands_restart

    target = await git_commit.on_server(args.repository_ref(), args.proposal())
    named = target.repository
    restart_options = commands_restart.RestartOptions(
        args.name, args.namespace, args.cluster, args.reason, target.proposal
    )
    done, key = await commands_restart.restart(named, restart_options)
    commit_options.show(
        args, "Restart", done, named.display, object={"namespace": key.namespace, "name": key.name}
    )
    return 0


@dataclass(frozen=True, kw_only=True)
class DriftArgs(commit_options.CommitArgs, options.CommitTargetArgs, options.ConnectionArgs):
    """The arguments and options of `gitops-ds drift`."""

    name: str | None
    exit_code: bool


@click.command()
@click.argument("name", required=False, shell_complete=candidates.daemonsets)
@options.option("--push", is_flag=True, help="Push the commit that keeps the drift.")
@options.option("--print", "only_print", is_flag=True, help="Print that commit.")
@commit_options.written
@options.option("--exit-code", is_flag=True, help="Exit 1 if there is drift.")
@options.written_to
@options.connection
@options.output("text", "json")
@options.common
@options.typed(DriftArgs)
async def drift(args: DriftArgs) -> int:
    """Show fields that were changed in the cluster and their field managers; with --print or --push
    write the commit that keeps the changes.
    """
    if (args.push or args.only_print) and not args.name:
        raise click.UsageError("NAME is required with --push and --print: ds/NAME")
    from gitops_ds.cli.commands import plan as plan_command
    from gitops_ds.cli.commands.commits import drift_commit, git_commit
    from gitops_ds.status import agents

    repository = args.repository_ref()
    target = plan_command.ApplyTarget(args.cluster, args.namespace, args.connection())
    drifts = await drift_commit.look(repository, target)
    if args.name:
        name = agents.name_of(args.name)
        drifts = {
            key: drifted
            for key, drifted in drifts.items()
            if key.is_daemonset and key.name == name and args.namespace in ("", key.namespace)
        }
    if args.name and (args.push or args.only_print):
        key, drifted = _only(args.name, drifts)
        written = await git_commit.on_server(repository, args.proposal())
        request = drift_commit.DriftCommitOptions(target, args.reason, written.proposal)
        done = await drift_commit.take(written.repository, key, drifted, request)
        commit_options.show(args, "Drift", done, written.repository.display)
        return 0
    _show_drift(drifts, args)
    return 1 if args.exit_code and drifts else 0


def _only(name: str, drifts: Mapping[Key, Drifted]) -> tuple[Key, Drifted]:
    """The drift of the one DaemonSet. Raises UsageError for several, Refused for none."""
    from gitops_ds.core import errors

    if len(drifts) > 1:
        spaces = ", ".join(key.namespace for key in drifts)
        raise errors.UsageError(f"{name} was changed in the namespaces {spaces}: choose with -n")
    for key, drifted in drifts.items():
        return key, drifted
    raise errors.Refused(f"{name} has no drift: there is nothing to commit")


def _show_drift(drifted: Mapping[Key, Drifted], args: DriftArgs) -> None:
    from gitops_ds.core import plain_text
    from gitops_ds.core.objects import show_path
    from gitops_ds.core.redaction import objects
    from gitops_ds.deploy.plan import drift

    if args.output == "json":
        items = [
            {
                "object": {"kind": key.kind, "namespace": key.namespace, "name": key.name},
                **drift.as_json(one),
            }
            for key, one in drifted.items()
        ]
        options.show_json(options.document("Drift", items=items))
        return
    for key, one in drifted.items():
        click.echo(f"{key} was {drift.words(one)}")
        for change in (objects.field(key, field) for field in one.fields):
            path = plain_text.line(show_path(change.path))
            click.echo(f"  {path}: {change.new!r} in Git, {change.old!r} in the cluster")
    if not drifted:
        options.say("no drift found", quiet=args.quiet)
    elif any(key.is_daemonset for key in drifted):
        keep = "to keep a change of a DaemonSet, commit it: gitops-ds drift ds/NAME --push"
        options.say(keep, quiet=args.quiet)
