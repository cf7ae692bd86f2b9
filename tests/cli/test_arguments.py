"""Every command gets its parameters as one frozen dataclass, whose fields are the command's
parameters.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gitops_ds import cli
from gitops_ds.cli.parameters import options


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli.cli)
    for name in cli.cli.list_commands(context):
        command = cli.cli.get_command(context, name)
        assert command is not None
        yield name, command


def arguments_of(command: click.Command) -> Any:
    """The dataclass that `arguments.typed` was called with."""
    assert command.callback is not None
    return inspect.getclosurevars(command.callback).nonlocals["kind"]


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_fields_are_the_parameters_of_the_command(name: str) -> None:
    command = dict(commands())[name]
    kind = arguments_of(command)
    assert kind.__dataclass_params__.frozen
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields == {p.name for p in command.params if p.expose_value}


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_a_field_allows_none_if_its_parameter_does(name: str) -> None:
    command = dict(commands())[name]
    types = {field.name: str(field.type) for field in dataclasses.fields(arguments_of(command))}
    words = ["1" * 8 for p in command.params if isinstance(p, click.Argument) and p.required]
    if name == "completion":
        words = ["bash"]
    words += [
        word
        for p in command.params
        if isinstance(p, click.Option) and p.required
        for word in (p.opts[0], "1")
    ]
    context = command.make_context(name, words)
    for field, value in context.params.items():
        assert value is not None or types[field].endswith("| None"), field
        if value is None or isinstance(value, str | bool | int):
            plain = types[field].removesuffix(" | None")
            assert value is None or plain in {type(value).__name__, "float"}, field


def test_a_command_gets_its_parameters_as_one_object() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class SampleArgs(options.CommonArgs):
        name: str

    seen = []

    @click.command()
    @click.argument("name")
    @click.option("-v", "--verbose", count=True)
    @click.option("-q", "--quiet", is_flag=True)
    @options.typed(SampleArgs)
    def sample(args: SampleArgs) -> int:
        """Prints nothing."""
        seen.append(args)
        return 0

    assert CliRunner().invoke(sample, ["a", "-vv"]).exit_code == 0
    assert seen == [SampleArgs(name="a", verbose=2, quiet=False)]
    assert sample.help == "Prints nothing."


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["check", "plan"])
def test_the_old_name_of_snapshot_works_and_is_hidden(name: str) -> None:
    command = dict(commands())[name]
    for option in ("--snapshot", "--inventory"):
        context = command.make_context(name, [option, "nodes.json"])
        assert context.params["snapshot"] in ("nodes.json", ("nodes.json",))
    text = command.get_help(click.Context(command))
    assert "--snapshot" in text
    assert "--inventory" not in text
    for variable in ("GITOPS_DS_SNAPSHOT", "GITOPS_DS_INVENTORY"):
        done = CliRunner().invoke(cli.cli, [name], env={variable: "missing.json"})
        assert done.exit_code
