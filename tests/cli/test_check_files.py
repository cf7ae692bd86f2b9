"""`check FILE…` reads the whole repository and reports the findings of the named files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import Result

from gitops_ds.core import errors
from tests.cli.commands import invoked
from tests.plan.world import daemonset


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A work tree with two wrong manifests, one of them in a directory."""
    subprocess.run(["git", "init", "--quiet", tmp_path / "fleet"], check=True)
    for name in ("a.json", "below/b.json"):
        body = daemonset(Path(name).stem)
        body["spec"]["template"]["metadata"]["labels"] = {"app": "another"}
        (tmp_path / "fleet" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "fleet" / name).write_text(json.dumps(body))
    (tmp_path / "outside.json").write_text("{}")
    return tmp_path / "fleet"


def check(*arguments: str | Path) -> Result:
    """The check, with its report as JSON."""
    return invoked("check", *arguments, "-o", "json")


def reported_files(done: Result) -> set[str]:
    """The files with findings."""
    return {one["file"] for one in json.loads(done.stdout)["findings"]}


def test_only_findings_of_the_named_files_are_reported(fleet: Path) -> None:
    assert reported_files(check(fleet)) == {"a.json", "below/b.json"}
    assert reported_files(check(fleet, fleet / "a.json")) == {"a.json"}
    assert reported_files(check("-C", fleet, fleet / "below/b.json")) == {"below/b.json"}
    assert reported_files(
        check("-C", fleet, os.path.relpath(fleet / "a.json"), fleet / "below/b.json")
    ) == {
        "a.json",
        "below/b.json",
    }
    assert reported_files(check(fleet / "below", fleet / "below/b.json")) == {"b.json"}


def test_the_exit_code_is_that_of_the_named_files(fleet: Path) -> None:
    (fleet / "a.json").write_text(json.dumps(daemonset("a")))
    assert check(fleet, "--fail-on", "error").return_value == 1
    assert check(fleet, fleet / "a.json").return_value == 0
    assert check(fleet, fleet / "below/b.json").return_value == 1


def test_a_file_that_is_not_there_or_lies_outside_is_wrong_usage(fleet: Path) -> None:
    for words in (
        (fleet, fleet / "c.json"),
        (fleet, fleet.parent / "outside.json"),
        (fleet, fleet / "below"),
    ):
        error = check(*words).exception
        assert isinstance(error, errors.UsageError | click.UsageError)
        assert str(words[1]) in str(error)
