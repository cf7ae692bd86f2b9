"""`gitops-ds doctor`: checks of the installation, one line each."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, options


@dataclass(frozen=True, kw_only=True)
class DoctorArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds doctor`."""

    repository: str | None
    directory: str | None
    path: str
    settings: str | None
    cluster: str
    output: str


@click.command()
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
@options.output("text", "json")
@options.common
@options.typed(DoctorArgs)
async def doctor(args: DoctorArgs) -> int:
    """Check settings, Git, the cluster and the permissions in it; writes nothing. Exits 1 if a
    check fails.
    """
    from gitops_ds.checks.report import printable
    from gitops_ds.cli.doctor import checks, result
    from gitops_ds.cli.doctor.result import CheckVerdict

    repository = args.repository or args.directory
    doctor_options = result.DoctorOptions(
        repository, args.path, args.settings, args.cluster, args.connection()
    )
    lines = []
    colours = {CheckVerdict.OK: "green", CheckVerdict.WARNING: "yellow", CheckVerdict.BAD: "red"}
    async for line in checks.examine(doctor_options):
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
        options.show_json(checks.as_json(lines))
    return 1 if any(line.verdict is CheckVerdict.BAD for line in lines) else 0
