"""The commands of the program, as click knows them."""

from __future__ import annotations

import click

from gitops_ds import cli


def command(name: str) -> click.Command:
    """The command with that name."""
    found = cli.cli.get_command(click.Context(cli.cli), name)
    assert found is not None
    return found


COMMANDS = {name: command(name) for name in cli.COMMANDS}
OPTIONS = [
    (name, option)
    for name, one in COMMANDS.items()
    for option in one.params
    if isinstance(option, click.Option)
]
