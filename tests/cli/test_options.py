"""Every command gets its parameters as one frozen dataclass; what means the same has the same name
in every command, and a time is taken in every spelling.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gitops_ds import cli
from gitops_ds.cli.parameters import options
from tests.cli.commands import COMMANDS, OPTIONS, invoked

ROOT = Path(__file__).resolve().parents[2]


def arguments_of(command: click.Command) -> Any:
    """The dataclass that `options.typed` was called with."""
    assert command.callback is not None
    return inspect.getclosurevars(command.callback).nonlocals["kind"]


@pytest.mark.parametrize("name", COMMANDS)
def test_fields_are_the_parameters_of_the_command(name: str) -> None:
    command = COMMANDS[name]
    kind = arguments_of(command)
    assert kind.__dataclass_params__.frozen
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields == {p.name for p in command.params if p.expose_value}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_field_allows_none_if_its_parameter_does(name: str) -> None:
    command = COMMANDS[name]
    types = {field.name: str(field.type) for field in dataclasses.fields(arguments_of(command))}
    words = ["1" * 16 for p in command.params if isinstance(p, click.Argument) and p.required]
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
            named = plain.rpartition(".")[2]
            assert value is None or named in {type(value).__name__, "float"}, field


@pytest.mark.parametrize("words", [("suspend",), ("suspend", "ds/agent"), ("hold", "abcdef1")])
@pytest.mark.parametrize(
    ("reason", "flaw"),
    [
        ("two\nlines", "the reason must be one line of printable characters"),
        ("x" * 201, "the reason has 201 characters: at most 200 are allowed"),
    ],
)
def test_a_reason_is_one_short_line(words: tuple[str, ...], reason: str, flaw: str) -> None:
    result = invoked(*words, "--reason", reason)
    assert isinstance(result.exception, click.BadParameter)
    assert result.exception.message == flaw


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["check", "plan"])
def test_the_old_name_of_snapshot_works_and_is_hidden(name: str) -> None:
    command = COMMANDS[name]
    for option in ("--snapshot", "--inventory"):
        context = command.make_context(name, [option, "nodes.json"])
        assert context.params["snapshot"] in ("nodes.json", ("nodes.json",))
    text = command.get_help(click.Context(command))
    assert "--snapshot" in text
    assert "--inventory" not in text
    for variable in ("GITOPS_DS_SNAPSHOT", "GITOPS_DS_INVENTORY"):
        done = CliRunner().invoke(cli.cli, [name], env={variable: "missing.json"})
        assert done.exit_code


def test_options_with_the_same_words_have_a_name_in_common() -> None:
    names = defaultdict[str, list[set[str]]](list)
    for _, option in OPTIONS:
        if option.help:
            names[option.help].append(set(option.opts))
    assert len(names["The directory inside the repository."]) > 10
    assert {words: found for words, found in names.items() if not set.intersection(*found)} == {}


@pytest.mark.parametrize("option", ["--path", "--path-in-repository"])
def test_explain_takes_a_directory_inside_the_repository_beside_the_path_of_a_value(
    option: str,
) -> None:
    value = "spec.updateStrategy.rollingUpdate.maxUnavailable"
    words = ["explain", "node-exporter", value, "-C", str(ROOT), option, "examples-repo"]
    done = invoked(*words, "--cluster", "eu-1")
    assert done.exception is None, done.output
    assert "agents/node-exporter/daemonset.yaml" in done.output


WORDS_OF_TIMES = ("timeout", "interval", "how long", "how often", "seconds to", "seconds for")
TIMES = [
    (name, option)
    for name, option in OPTIONS
    if any(word in f"{option.name} {option.help}".lower() for word in WORDS_OF_TIMES)
]
each_time = pytest.mark.parametrize(
    ("name", "option"), TIMES, ids=lambda value: getattr(value, "name", value)
)


def test_the_options_that_take_a_time_are_found_by_their_words_and_by_their_type() -> None:
    def of_type(*types: type) -> set[tuple[str, str | None]]:
        return {(name, one.name) for name, one in OPTIONS if isinstance(one.type, types)}

    # a number that is something else
    assert of_type(click.FloatRange, type(click.FLOAT)) == {("demo", "speed")}
    times = of_type(options.DurationType)
    assert times == {(name, option.name) for name, option in TIMES}
    commands = ("apply", "comment", "reconcile", "wait")
    assert times >= {("run", "interval"), *((command, "timeout") for command in commands)}


SPELLINGS = {
    "60s": 60.0,
    "5m": 300.0,
    "1h30m": 5400.0,
    "1500ms": 1.5,
    "90": 90.0,
    "1.5": 1.5,
    "1d": 86400.0,
}


@pytest.mark.parametrize("text", SPELLINGS)
@each_time
def test_a_time_is_taken_in_every_spelling(name: str, option: click.Option, text: str) -> None:
    context = click.Context(COMMANDS[name], info_name=name)
    assert option.type_cast_value(context, text) == SPELLINGS[text]


@pytest.mark.parametrize("text", ["abc", "-1s", "", "5 m", "1e400", "nan", "²", "9" * 400])
@each_time
def test_what_is_not_a_time_is_refused_with_how_to_write_one(
    name: str, option: click.Option, text: str
) -> None:
    context = click.Context(COMMANDS[name], info_name=name)
    with pytest.raises(click.BadParameter, match="write 30s, 5m or 1h"):
        option.type_cast_value(context, text)


@each_time
def test_the_default_of_a_time_is_one_as_well(name: str, option: click.Option) -> None:
    found = COMMANDS[name].make_context(name, [], resilient_parsing=True).params[str(option.name)]
    assert found is None or found > 0


@pytest.mark.parametrize("command", [("approve",), ("apply", "--approve")])
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("89c52d7634e9", "looks like a commit ID"),
        ("89c52d7634e9" + "0" * 28, "looks like a commit ID"),
        ("0" * 64, "looks like a commit ID"),
        ("89c5", "looks like a commit ID"),
        ("0" * 15 + "-3", "`gitops-ds plan` and the log print the hash"),
        ("0" * 16 + "-many", "`gitops-ds plan` and the log print the hash"),
        ("HEAD", "`gitops-ds release COMMIT`"),
    ],
)
def test_only_the_hash_of_a_plan_is_one(command: tuple[str, ...], text: str, hint: str) -> None:
    error = invoked(*command, text).exception
    assert isinstance(error, click.BadParameter)
    assert f"'{text}' is not the hash of a plan" in error.message
    assert hint in error.message
