"""What means the same has the same name in every command."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click
from click.testing import CliRunner

from gitops_ds import cli

ROOT = Path(__file__).resolve().parents[2]


def test_options_with_the_same_words_have_a_name_in_common() -> None:
    context, names = click.Context(cli.cli), defaultdict[str, list[set[str]]](list)
    for name in cli.cli.list_commands(context):
        command = cli.cli.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and option.help:
                names[option.help].append(set(option.opts))
    assert len(names["The directory inside the repository."]) > 10
    assert {words: found for words, found in names.items() if not set.intersection(*found)} == {}


def test_explain_takes_a_directory_inside_the_repository_beside_the_path_of_a_value() -> None:
    value = "spec.updateStrategy.rollingUpdate.maxUnavailable"
    for option in ("--path", "--path-in-repository"):
        words = [
            "explain",
            "node-exporter",
            value,
            "-C",
            str(ROOT),
            option,
            "examples-repo",
            "--cluster",
            "eu-1",
        ]
        done = CliRunner().invoke(cli.cli, words, standalone_mode=False)
        assert done.exception is None, done.output
        assert "agents/node-exporter/daemonset.yaml" in done.output
