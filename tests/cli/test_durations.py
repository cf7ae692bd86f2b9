"""Every option that takes a time takes it in every spelling."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from gitops_ds import cli
from gitops_ds.cli.parameters import options

SPELLINGS = {
    "60s": 60.0,
    "5m": 300.0,
    "1h30m": 5400.0,
    "1500ms": 1.5,
    "90": 90.0,
    "1.5": 1.5,
    "1d": 86400.0,
}
NO_TIMES = {("demo", "speed")}  # numbers that are something else


def _options() -> Iterator[tuple[str, click.Command, click.Option]]:
    context = click.Context(cli.cli)
    for name in cli.cli.list_commands(context):
        command = cli.cli.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield name, command, parameter


def _is_time(option: click.Option) -> bool:
    words = f"{option.name} {option.help}".lower()
    return any(
        word in words
        for word in ("timeout", "interval", "how long", "how often", "seconds to", "seconds for")
    )


TIMES = [(name, command, option) for name, command, option in _options() if _is_time(option)]


def test_the_options_that_take_a_time_are_found_by_their_words_and_by_their_type() -> None:
    numbers = {
        (name, str(option.name))
        for name, _, option in _options()
        if isinstance(option.type, click.FloatRange | type(click.FLOAT))
    }
    assert numbers == NO_TIMES
    typed = {
        (name, str(option.name))
        for name, _, option in _options()
        if isinstance(option.type, options.DurationType)
    }
    assert typed == {(name, str(option.name)) for name, _, option in TIMES}
    assert typed >= {
        (command, "timeout") for command in ("apply", "comment", "reconcile", "wait")
    } | {("run", "interval")}


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize(
    ("name", "command", "option"), TIMES, ids=lambda value: getattr(value, "name", value)
)
def test_it_takes_every_spelling(
    name: str, command: click.Command, option: click.Option, text: str
) -> None:
    context = click.Context(command, info_name=name)
    assert option.type_cast_value(context, text) == SPELLINGS[text]


@pytest.mark.parametrize("text", ["abc", "-1s", "", "5 m", "1e400", "nan", "²", "9" * 400])
@pytest.mark.parametrize(
    ("name", "command", "option"), TIMES, ids=lambda value: getattr(value, "name", value)
)
def test_it_refuses_what_is_not_a_time_and_shows_how_to_write_one(
    name: str, command: click.Command, option: click.Option, text: str
) -> None:
    context = click.Context(command, info_name=name)
    with pytest.raises(click.BadParameter, match="write 30s, 5m or 1h"):
        option.type_cast_value(context, text)


@pytest.mark.parametrize(
    ("name", "command", "option"), TIMES, ids=lambda value: getattr(value, "name", value)
)
def test_its_default_is_a_time_as_well(
    name: str, command: click.Command, option: click.Option
) -> None:
    found = command.make_context(name, [], resilient_parsing=True).params[str(option.name)]
    assert found is None or found > 0
