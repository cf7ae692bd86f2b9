"""`gitops-ds init`: a small valid repository to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@click.argument(
    "directory", metavar="[DIR]", required=False, default=".", type=click.Path(path_type=Path)
)
@options.common
def init(**given: Any) -> int:
    """Write a repository with one agent, one cluster, CI for GitHub and GitLab and a pre-commit
    hook; overwrites nothing.
    """
    from gitops_ds.commands import init as commands_init

    directory: Path = given["directory"]
    for path in commands_init.write(directory, commands_init.files()):
        click.echo(f"wrote {directory / path}")
    options.say(
        _NEXT.format(enter="" if directory == Path() else f"cd {directory}\n  "),
        quiet=given["quiet"],
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
