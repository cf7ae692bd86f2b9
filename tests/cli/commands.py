"""The commands of the program, as click knows them, and their results."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import click
from click.testing import CliRunner, Result

from gitops_ds import cli
from gitops_ds.cli import command_table

T = TypeVar("T")


def command(name: str) -> click.Command:
    """The command with that name."""
    found = cli.cli.get_command(click.Context(cli.cli), name)
    assert found is not None
    return found


COMMANDS = {name: command(name) for name in command_table.COMMANDS}
OPTIONS = [
    (name, option)
    for name, one in COMMANDS.items()
    for option in one.params
    if isinstance(option, click.Option)
]
ALONE = dict.fromkeys(("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "CI_PROJECT_URL"))


def parsed(kind: type[T], name: str, *words: str | Path, **options: object) -> T:
    """The arguments of a command line, as its command gets them; options also by their names."""
    flags = [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
    context = COMMANDS[name].make_context(name, [*map(str, words), *flags])
    return kind(**context.params)


def invoked(*words: str | Path, **environment: str | None) -> Result:
    """The result of a command, with its error as an exception; outside of a CI job."""
    runner = CliRunner(env={**ALONE, **environment})
    return runner.invoke(cli.cli, [*map(str, words)], standalone_mode=False)
