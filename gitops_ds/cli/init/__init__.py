"""`gitops-ds init`: writes a small valid repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli.parameters import options


@dataclass(frozen=True, kw_only=True)
class InitArgs(options.CommonArgs):
    """The arguments and options of `gitops-ds init`."""

    directory: Path


@options.command(InitArgs)
@click.argument(
    "directory", metavar="[DIR]", required=False, default=".", type=click.Path(path_type=Path)
)
def init(args: InitArgs) -> int:
    """Write a repository with one agent, one cluster, CI for GitHub and GitLab and a pre-commit
    hook; overwrites no file.
    """
    from gitops_ds.cli.init import scaffold

    directory: Path = args.directory
    for path in scaffold.write(directory, scaffold.files()):
        click.echo(f"wrote {directory / path}")
    enter = "" if directory == Path() else f"cd {directory}\n  "
    options.say(_NEXT.format(enter=enter, start=start(directory)), quiet=args.quiet)
    return 0


def start(directory: Path) -> str:
    """The command that makes a repository; empty inside of one."""
    here = directory.absolute()
    return "" if any((folder / ".git").exists() for folder in (here, *here.parents)) else _GIT_INIT


_GIT_INIT = "git init -b main && "


_NEXT = """
Next:
  {enter}{start}git add . && git commit -m "One agent"
  gitops-ds check                 # check the files
  gitops-ds plan --simulate 5     # show the changes, without a cluster
  gitops-ds doctor                # check Git, cluster and permissions
  gitops-ds plan                  # show the changes of the current cluster
  gitops-ds apply --wait"""
