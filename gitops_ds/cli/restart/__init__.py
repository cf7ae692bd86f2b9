"""`gitops-ds restart`: writes the commit that restarts the pods of a DaemonSet."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, commit_options, formats, options


@dataclass(frozen=True, kw_only=True)
class RestartArgs(commit_options.CommitArgs, options.CommitTargetArgs):
    """The arguments and options of `gitops-ds restart`."""

    name: str


@options.command(RestartArgs)
@click.argument("name", shell_complete=candidates.daemonsets)
@commit_options.proposal
@options.written_to
@formats.output("text", "json")
async def restart(args: RestartArgs) -> int:
    """Write the commit that restarts ds/NAME as `kubectl rollout restart` does; without --push
    print it only.
    """
    from gitops_ds.cli.commits import git_commit
    from gitops_ds.cli.restart import restart_commit

    target = await git_commit.on_server(args.repository_ref(), args.proposal())
    done, key = await restart_commit.restart(target, args.name, args, args.reason)
    where, object = target.repository.display, {"namespace": key.namespace, "name": key.name}
    commit_options.show(args, "Restart", done, where, object=object)
    return 0
