"""`gitops-ds restart`: a restart of a DaemonSet's pods by a commit, so that Git records it."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, commit_options, options


@dataclass(frozen=True, kw_only=True)
class RestartArgs(commit_options.CommitArgs, options.CommitTargetArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds restart`."""

    name: str
    output: str


@click.command()
@click.argument("name", shell_complete=candidates.daemonsets)
@commit_options.proposal
@options.written_to
@options.output("text", "json")
@options.common
@options.typed(RestartArgs)
def restart(args: RestartArgs) -> int:
    """Write the commit that restarts ds/NAME as `kubectl rollout restart` does; without --push
    print it only.
    """
    return options.run(_restart(args))


async def _restart(args: RestartArgs) -> int:
    from gitops_ds.commands.commits import git_commit
    from gitops_ds.commands.commits import restart as commands_restart

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
