"""`gitops-ds doctor`: checks of the installation, one line each."""

from __future__ import annotations

import click

from gitops_ds.cli.doctor.arguments import DoctorArgs
from gitops_ds.cli.parameters import candidates, formats, options


@options.command(DoctorArgs)
@click.argument("repository", required=False, shell_complete=candidates.directories)
@options.directory
@options.inside
@options.option(
    "--settings",
    shell_complete=candidates.files,
    help="The settings file of the service, checked as well.",
)
@options.cluster_name
@options.connection
@formats.output("text", "json")
async def doctor(args: DoctorArgs) -> int:
    """Check settings, Git, the cluster and the permissions in it; writes nothing. Exits 1 if a
    check fails.
    """
    from gitops_ds.checks.report import printable
    from gitops_ds.cli.doctor import checks
    from gitops_ds.cli.doctor.result import CheckVerdict

    lines = []
    colours = {CheckVerdict.OK: "green", CheckVerdict.WARNING: "yellow", CheckVerdict.BAD: "red"}
    async for line in checks.examine(args):
        lines.append(line)
        if args.output == "text" and not (args.quiet and line.verdict is CheckVerdict.OK):
            verdict = click.style(f"{line.verdict:<7}", colours[line.verdict])
            click.echo(
                f"{verdict}  "
                + printable.block(
                    f"{line.name}: {line.message}" + (f"; {line.advice}" if line.advice else "")
                )
            )
    if args.output == "json":
        formats.show_json(checks.as_json(lines))
    return 1 if any(line.verdict is CheckVerdict.BAD for line in lines) else 0
