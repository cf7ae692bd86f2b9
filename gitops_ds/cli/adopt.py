"""`gitops-ds adopt`: a repository from what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gitops_ds.cli import options


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
def adopt(**given: Any) -> int:
    """Write manifests of the DaemonSets that live in a cluster, with what they need; overwrites
    nothing, changes nothing there.
    """
    return options.run(_adopt(given))


async def _adopt(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands import adopt as commands_adopt
    from gitops_ds.commands import init

    directory: Path = given["directory"]
    async with connect.opened(connect.Connection(given["kubeconfig"], given["context"])) as cluster:
        adopted = await commands_adopt.adopt(cluster, given["namespaces"])
    for path in init.write(directory, adopted.files):
        click.echo(f"wrote {directory / path}")
    for note in adopted.notes:
        options.say(f"note: {note}")
    options.say(
        _NEXT.format(enter="" if directory == Path() else f"cd {directory}\n  "),
        quiet=given["quiet"],
    )
    return 0


_NEXT = """
Next:
  {enter}git init -b main && git add . && git commit -m "As it runs"
  gitops-ds check                 # what could be better
  gitops-ds plan                  # restarts nothing
  gitops-ds apply"""
