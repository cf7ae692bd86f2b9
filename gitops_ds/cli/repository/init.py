"""`gitops-ds init`: a small valid repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli.parameters import options


@dataclass(frozen=True, kw_only=True)
class InitArgs(options.CommonArgs):
    """The arguments and options of `gitops-ds init`."""

    directory: Path


@click.command()
@click.argument(
    "directory", metavar="[DIR]", required=False, default=".", type=click.Path(path_type=Path)
)
@options.common
@options.typed(InitArgs)
def init(args: InitArgs) -> int:
    """Write a repository with one agent, one cluster, CI for GitHub and GitLab and a pre-commit
    hook; overwrites no file.
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
  gitops-ds check                 # check the files
  gitops-ds plan --simulate 5     # show the changes, without a cluster
  gitops-ds doctor                # check Git, cluster and permissions
  gitops-ds plan                  # show the changes of the current cluster
  gitops-ds apply --wait"""
