"""`gitops-ds init`: a small valid repository to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli import arguments, options


@dataclass(frozen=True, kw_only=True)
class InitArgs(arguments.CommonArgs):
    """The arguments and options of `gitops-ds init`."""

    directory: Path


@click.command()
@click.argument(
    "directory", metavar="[DIR]", required=False, default=".", type=click.Path(path_type=Path)
)
@options.common
@arguments.typed(InitArgs)
def init(args: InitArgs) -> int:
    """Write a repository with one agent, one cluster, CI for GitHub and GitLab and a pre-commit
    hook; overwrites nothing.
    """
    from gitops_ds.commands import init as commands_init

    directory: Path = args.directory
    for path in commands_init.write(directory, commands_init.files()):
        click.echo(f"wrote {directory / path}")
    options.say(
        _NEXT.format(enter="" if directory == Path() else f"cd {directory}\n  "),
        quiet=args.quiet,
    )
    return 0


_NEXT = """
Next:
  {enter}git init -b main && git add . && git commit -m "One agent"
  gitops-ds check                 # is what the files say right?
  gitops-ds plan --simulate 5     # what would happen, without a cluster
  gitops-ds doctor                # are Git, cluster and rights well?
  gitops-ds plan                  # what would happen to the cluster of your kubeconfig
  gitops-ds apply --wait"""
