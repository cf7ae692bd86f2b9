"""`gitops-ds help`: the help of a command."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, options


@dataclass(frozen=True, kw_only=True)
class HelpArgs:
    """The arguments of `gitops-ds help`."""

    command: str


@click.command()
@click.argument("command", required=False, default="", shell_complete=candidates.commands)
@options.typed(HelpArgs)
def help(args: HelpArgs) -> int:
    """Print the help of a command; without COMMAND list the commands."""
    from gitops_ds.cli import cli

    context = click.get_current_context()
    top = context.find_root()
    if not args.command:
        click.echo(cli.get_help(top))
        return 0
    name, command, _ = cli.resolve_command(top, [args.command])
    if command is not None:
        with command.make_context(name, [], parent=top, resilient_parsing=True) as about:
            click.echo(command.get_help(about))
    return 0
