"""`gitops-ds adopt`: writes a repository from the DaemonSets of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli import init
from gitops_ds.cli.parameters import candidates, options


@dataclass(frozen=True, kw_only=True)
class AdoptArgs(options.AccessArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds adopt`."""

    directory: Path
    namespaces: tuple[str, ...]


@options.command(AdoptArgs)
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
async def adopt(args: AdoptArgs) -> int:
    """Write the manifests of a cluster's DaemonSets and of the objects they use; overwrites no file
    and changes nothing in the cluster.
    """
    from gitops_ds.cli.adopt import adopted_repository
    from gitops_ds.cli.init import scaffold

    directory: Path = args.directory
    async with args.open_cluster() as cluster:
        adopted = await adopted_repository.adopt(cluster, args.namespaces)
    for path in scaffold.write(directory, adopted.files):
        click.echo(f"wrote {directory / path}")
    for note in adopted.notes:
        options.say(f"note: {note}")
    enter = "" if directory == Path() else f"cd {directory}\n  "
    flag = " --adopt" if adopted.of_tools else ""
    plan = f"gitops-ds plan{flag}".ljust(31)
    words = _AFTER_ADOPT.format(enter=enter, start=init.start(directory), flag=flag, plan=plan)
    options.say(words, quiet=args.quiet)
    return 0


_AFTER_ADOPT = """
Next:
  {enter}{start}git add . && git commit -m "As it runs"
  gitops-ds check                 # list possible improvements
  {plan} # no pod restarts
  gitops-ds apply{flag}"""
