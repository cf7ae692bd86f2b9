"""`gitops-ds restart`: writes the commit that restarts the pods of a DaemonSet."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, commit_options, options


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
    from gitops_ds.cli.commits import git_commit
    from gitops_ds.cli.restart import restart_commit

    target = await git_commit.on_server(args.repository_ref(), args.proposal())
    named = target.repository
    restart_options = restart_commit.RestartOptions(
        args.name, args.namespace, args.cluster, args.reason, target.proposal
    )
    done, key = await restart_commit.restart(named, restart_options)
    commit_options.show(
        args, "Restart", done, named.display, object={"namespace": key.namespace, "name": key.name}
    )
    return 0
