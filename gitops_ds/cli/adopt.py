"""`gitops-ds adopt`: a repository from what runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli import arguments, options


@dataclass(frozen=True, kw_only=True)
class AdoptArgs(arguments.AccessArgs, arguments.CommonArgs):
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
    help="Only that namespace; several times for several.",
)
@options.access
@options.common
@arguments.typed(AdoptArgs)
def adopt(args: AdoptArgs) -> int:
    """Write manifests of the DaemonSets that live in a cluster, with what they need; overwrites
    nothing, changes nothing there.
    """
    return options.run(_adopt(args))


async def _adopt(args: AdoptArgs) -> int:
    from gitops_ds.commands import adopt as commands_adopt
    from gitops_ds.commands import init

    directory: Path = args.directory
    async with args.open_cluster() as cluster:
        adopted = await commands_adopt.adopt(cluster, args.namespaces)
    for path in init.write(directory, adopted.files):
        click.echo(f"wrote {directory / path}")
    for note in adopted.notes:
        options.say(f"note: {note}")
    options.say(
        _NEXT.format(enter="" if directory == Path() else f"cd {directory}\n  "),
        quiet=args.quiet,
    )
    return 0


_NEXT = """
Next:
  {enter}git init -b main && git add . && git commit -m "As it runs"
  gitops-ds check                 # what could be better
  gitops-ds plan                  # restarts nothing
  gitops-ds apply"""
