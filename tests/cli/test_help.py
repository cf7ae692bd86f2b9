"""`--help` and `help`, and what a mistyped command gets."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gitops_ds import cli
from gitops_ds.cli import command_table, examples
from tests.cluster.program import in_this_process

LINES = [line for pairs in examples.EXAMPLES.values() for _, line in pairs]


def test_every_command_has_examples_of_its_own() -> None:
    assert set(examples.EXAMPLES) == set(command_table.COMMANDS), "cli/examples.py has them"
    for command, pairs in examples.EXAMPLES.items():
        for _, line in pairs:
            assert f"gitops-ds {command}" in line


@pytest.mark.parametrize("line", LINES)
def test_every_example_is_valid(line: str) -> None:
    words = shlex.split(line.removeprefix("source <(").removesuffix(")"))
    words = words[1 : words.index(">")] if ">" in words else words[1:]
    with cli.cli.make_context("gitops-ds", words) as context:
        name, command, rest = cli.cli.resolve_command(context, words)
        assert command is not None
        command.make_context(name, rest, parent=context).close()


def test_help_has_the_examples_with_their_line_breaks(tmp_path: Path) -> None:
    for words in (("get", "--help"), ("help", "get")):
        shown = in_this_process(words, tmp_path, {})
        assert shown.code == 0, shown.err
        for purpose, line in examples.EXAMPLES["get"]:
            assert f"  # {purpose}\n" in shown.out
            assert f"  {line}\n" in shown.out
    assert in_this_process(("help", "diff"), tmp_path, {}).out.startswith("Usage: gitops-ds diff")


def test_help_lists_the_groups(tmp_path: Path) -> None:
    shown = in_this_process(("help",), tmp_path, {}).out
    assert shown == in_this_process(("--help",), tmp_path, {}).out
    assert all(f"\n{title}:\n" in shown for title in command_table.GROUPS)


@pytest.mark.parametrize(
    ("typed", "near"),
    [("plann", "plan"), ("dif", "diff"), ("stauts", "status"), ("event", "events")],
)
def test_a_mistyped_command_gets_the_nearest_name(tmp_path: Path, typed: str, near: str) -> None:
    for words in ((typed,), ("help", typed)):
        ended = in_this_process(words, tmp_path, {})
        assert (ended.code, f"'{near}'" in ended.err) == (2, True), ended.err


def test_a_plugin_of_kubectl_is_named_as_it_is_called() -> None:
    assert cli.program_name("/usr/bin/kubectl-gitops_ds") == "kubectl gitops-ds"
    assert cli.program_name("/usr/bin/gitops-ds") == "gitops-ds"
