"""The commands that write a repository: `gitops-ds init`, a small valid one; `adopt`, from the
DaemonSets of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli.parameters import candidates, options


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
    from gitops_ds.cli.commands import init as commands_init

    directory: Path = args.directory
    for path in commands_init.write(directory, commands_init.files()):
        click.echo(f"wrote {directory / path}")
    enter = "" if directory == Path() else f"cd {directory}\n  "
    options.say(_NEXT.format(enter=enter, start=_start(directory)), quiet=args.quiet)
    return 0


def _start(directory: Path) -> str:
    """The command that makes a repository; empty inside of one."""
    here = directory.absolute()
    return "" if any((one / ".git").exists() for one in (here, *here.parents)) else _GIT_INIT


_GIT_INIT = "git init -b main && "


_NEXT = """
Next:
  {enter}{start}git add . && git commit -m "One agent"
  gitops-ds check                 # check the files
  gitops-ds plan --simulate 5     # show the changes, without a cluster
  gitops-ds doctor                # check Git, cluster and permissions
  gitops-ds plan                  # show the changes of the current cluster
  gitops-ds apply --wait"""


@dataclass(frozen=True, kw_only=True)
class AdoptArgs(options.AccessArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds adopt`."""

    directory: Path
    namespaces: tuple[str, ...]


@click.command()
@click.argument(
    "directory", metavar="[DIR]", required=False, default=".", type=click.Path(path_type=Path)
)
@options.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    shell_complete=candidates.namespaces,
    help="Only this namespace; may be repeated.",
)
@options.access
@options.common
@options.typed(AdoptArgs)
async def adopt(args: AdoptArgs) -> int:
    """Write the manifests of a cluster's DaemonSets and of the objects they use; overwrites no file
    and changes nothing in the cluster.
    """
    from gitops_ds.cli.commands import adopt as commands_adopt
    from gitops_ds.cli.commands import init

    directory: Path = args.directory
    async with args.open_cluster() as cluster:
        adopted = await commands_adopt.adopt(cluster, args.namespaces)
    for path in init.write(directory, adopted.files):
        click.echo(f"wrote {directory / path}")
    for note in adopted.notes:
        options.say(f"note: {note}")
    enter = "" if directory == Path() else f"cd {directory}\n  "
    flag = " --adopt" if adopted.of_tools else ""
    plan = f"gitops-ds plan{flag}".ljust(31)
    words = _AFTER_ADOPT.format(enter=enter, start=_start(directory), flag=flag, plan=plan)
    options.say(words, quiet=args.quiet)
    return 0


_AFTER_ADOPT = """
Next:
  {enter}{start}git add . && git commit -m "As it runs"
  gitops-ds check                 # list possible improvements
  {plan} # no pod restarts
  gitops-ds apply{flag}"""
