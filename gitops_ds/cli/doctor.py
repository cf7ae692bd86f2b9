"""`gitops-ds doctor`: what is well and what is not, one line each."""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@click.argument("repository", required=False)
@options.directory
@options.inside
@options.option("--settings", help="The settings file of the service, to be checked as well.")
@options.cluster_name
@options.connection
@options.output("text", "json")
@options.common
def doctor(**given: Any) -> int:
    """Look at settings, Git, the cluster and our rights in it; writes nothing. Exits 1 when
    something is bad.
    """
    return options.run(_doctor(given))


async def _doctor(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands.doctor import checks, result
    from gitops_ds.commands.doctor.result import CheckVerdict

    connection = connect.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    repository = given["repository"] or given["directory"]
    wanted = result.DoctorOptions(
        repository, given["path"], given["settings"], given["cluster"], connection
    )
    lines = []
    colours = {CheckVerdict.OK: "green", CheckVerdict.WARNING: "yellow", CheckVerdict.BAD: "red"}
    async for line in checks.examine(wanted):
        lines.append(line)
        if given["output"] == "text" and not (given["quiet"] and line.verdict is CheckVerdict.OK):
            verdict = click.style(f"{line.verdict:<7}", colours[line.verdict])
            click.echo(
                f"{verdict}  {line.name}: {line.message}"
                + (f"; {line.advice}" if line.advice else "")
            )
    if given["output"] == "json":
        options.show_json(checks.as_json(lines))
    return 1 if any(line.verdict is CheckVerdict.BAD for line in lines) else 0
