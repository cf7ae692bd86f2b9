"""`check -o`: several formats in one run, and what a CI around it changes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as Xml

import click
import pytest
from click.testing import CliRunner, Result

from gitops_ds import cli
from gitops_ds.checks.report import markdown
from gitops_ds.core import errors
from tests.cluster import program
from tests.plan.world import daemonset
from tests.report import made

# Nothing of a CI that these tests may run in themselves.
OF_A_CI = ("GITHUB_", "CI_", "GITEA_", "FORGEJO_", "GITOPS_DS_OUTPUT")


def check(fleet: Path, *arguments: str | Path, **environ: str) -> Result:
    """The command, with no environment of a CI but the given."""
    alone = {name: None for name in os.environ if name.startswith(OF_A_CI)}
    return CliRunner(env={**alone, **environ}).invoke(
        cli.cli, ["check", str(fleet), *map(str, arguments)], standalone_mode=False
    )


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A work tree whose directory `fleet` holds a manifest with an error: a selector of another
    name.
    """
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    body = daemonset()
    body["spec"]["template"]["metadata"]["labels"] = {"app": "another"}
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet/agent.json").write_text(json.dumps(body))
    return tmp_path / "fleet"


def test_several_formats_are_written_in_one_run(fleet: Path, tmp_path: Path) -> None:
    formats = ("text", "github", "gitlab", "sarif", "junit", "markdown", "json")
    done = check(
        fleet,
        "--all",
        "-o",
        "text",
        *(part for format in formats for part in ("-o", f"{format}={tmp_path / format}")),
    )
    assert done.return_value == 1
    outputs = {format: (tmp_path / format).read_text() for format in formats}
    assert outputs["text"] == done.stdout
    assert "DS101" in outputs["text"]
    assert [
        one.properties["file"] for one in made.commands(outputs["github"]) if one.name == "error"
    ] == ["fleet/agent.json"]
    assert "gitops-ds/DS101" in {one["check_name"] for one in json.loads(outputs["gitlab"])}
    (run,) = json.loads(outputs["sarif"])["runs"]
    assert "DS101" in {one["ruleId"] for one in run["results"]}
    assert next(one for one in run["tool"]["driver"]["rules"] if one["id"] == "DS101")["help"][
        "markdown"
    ].startswith("# DS101")
    assert [one.get("type") for one in Xml.fromstring(outputs["junit"]).iter("failure")] == [
        "DS101"
    ]
    assert outputs["markdown"].startswith(
        "<!-- gitops-ds:report key=check v=1 -->\n**gitops-ds check: 1 error"
    )
    assert json.loads(outputs["json"])["summary"]["error"] == 1


@pytest.mark.parametrize(
    ("environ", "options", "github"),
    [
        ({"GITHUB_ACTIONS": "true"}, [], True),
        ({"GITHUB_ACTIONS": "true"}, ["-o", "text"], False),
        ({"GITHUB_ACTIONS": "true", "GITOPS_DS_OUTPUT": "text"}, [], False),
        ({"GITHUB_ACTIONS": "false"}, [], False),
        ({}, [], False),
        ({}, ["-o", "github"], True),
    ],
)
def test_on_github_actions_annotations_are_written_unless_another_format_is_requested(
    fleet: Path, environ: dict[str, str], options: list[str], github: bool
) -> None:
    done = check(fleet, *options, **environ)
    assert done.return_value == 1
    assert done.stdout.startswith("::error ") is github


def test_the_summary_of_a_step_is_appended_to_its_file(fleet: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    check(fleet, "-o", "text", GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text().startswith("before\n<!-- gitops-ds:report")
    assert "DS101" in summary.read_text()


def test_a_summary_without_room_is_left_alone(fleet: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("x" * (markdown.SUMMARY - 50))
    check(fleet, GITHUB_STEP_SUMMARY=str(summary))
    assert summary.stat().st_size == markdown.SUMMARY - 50


def test_a_summary_that_cannot_be_written_is_reported_and_changes_no_exit_code(
    fleet: Path, tmp_path: Path
) -> None:
    done = check(fleet, GITHUB_STEP_SUMMARY=str(tmp_path / "none/summary.md"))
    assert done.return_value == 1
    assert "the summary was not written" in done.stderr


@pytest.mark.parametrize(
    ("format", "message"),
    [
        (
            "yaml",
            "unknown format 'yaml': use text, github, gitlab, sarif, junit, markdown or json",
        ),
        ("json=", "'json=' names no file"),
    ],
)
def test_an_unknown_format_is_a_usage_error(fleet: Path, format: str, message: str) -> None:
    done = check(fleet, "-o", format)
    assert isinstance(done.exception, click.UsageError)
    assert done.exception.exit_code == 2
    assert message in done.exception.format_message()


def test_a_file_that_cannot_be_written_is_wrong_usage(fleet: Path, tmp_path: Path) -> None:
    done = check(fleet, "-o", f"json={tmp_path / 'none' / 'x.json'}")
    assert isinstance(done.exception, click.UsageError)
    assert "No such file" in done.exception.format_message()


def test_without_standard_output_a_line_names_the_files(fleet: Path, tmp_path: Path) -> None:
    options = ("-o", f"json={tmp_path / 'x.json'}")
    done = check(fleet, *options)
    assert (done.stdout, done.stderr.count("1 error")) == ("", 1)
    assert check(fleet, *options, "-q").output == ""


ON_GITHUB = {"GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": "abc"}


@pytest.mark.parametrize(
    ("environ", "commit"),
    [
        (ON_GITHUB, "https://github.com/o/r/blob/abc"),
        (
            {**ON_GITHUB, "GITHUB_SERVER_URL": "https://git.example.com", "GITEA_ACTIONS": "true"},
            "https://git.example.com/o/r/src/commit/abc",
        ),
        (
            {"CI_PROJECT_URL": "https://gitlab.com/o/r", "CI_COMMIT_SHA": "abc"},
            "https://gitlab.com/o/r/-/blob/abc",
        ),
        ({}, ""),
    ],
)
def test_findings_are_linked_when_the_ci_has_the_address_of_files(
    fleet: Path, environ: dict[str, str], commit: str
) -> None:
    links = re.findall(r"\]\(([^)]*)\)", check(fleet, "-o", "markdown", **environ).stdout)
    assert set(links) == ({f"{commit}/fleet/agent.json#L1"} if commit else set())


def test_a_change_is_reported_next_to_the_findings(fleet: Path, tmp_path: Path) -> None:
    def commit(image: str) -> None:
        (fleet / "agent.json").write_text(json.dumps(daemonset(image=image)))
        git = ("git", "-C", tmp_path, "-c", "user.name=d", "-c", "user.email=d@example.com")
        subprocess.run([*git, "add", "fleet"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", image], check=True)
        subprocess.run([*git, "branch", f"at-{image[-1]}"], check=True)

    commit("registry.example.com/agent:1")
    commit("registry.example.com/agent:2")
    node = {
        "kind": "Node",
        "metadata": {"name": "node-1", "uid": "1", "labels": {}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": [node]}))
    options = ("--base", "at-1", "--snapshot", tmp_path / "nodes.json")
    outputs = {
        format: check(fleet, *options, "-o", format).stdout
        for format in ("text", "markdown", "json")
    }
    assert "new revision 2" in outputs["text"]
    assert "if a pod takes" in outputs["text"]
    assert "| all | 1 | 1 | 0 | 0 | 1 | about " in outputs["markdown"]
    assert "```diff\n" in outputs["markdown"]
    assert json.loads(outputs["json"])["changes"][0]["changes"][0]["rehearsal"]["steps"] == 1
    assert (
        "The change changes no object." in check(fleet, "--base", "at-2", "-o", "markdown").stdout
    )
    assert "No object changes." in check(fleet, "--base", "at-2").stdout


@pytest.mark.parametrize("inside", [True, False])
def test_a_report_is_not_written_through_a_link_of_the_repository(
    fleet: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, inside: bool
) -> None:
    """As a pull request commits one: a link to a file, a link to nothing, and a directory that is
    one.
    """
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    program = (elsewhere if not inside else tmp_path) / "program"
    program.write_text("#!/bin/sh")
    (fleet / "report.json").symlink_to(program)
    (fleet / "new.json").symlink_to(program.with_name("new"))
    (fleet / "folder").symlink_to(program.parent)
    for name, message in (
        ("report.json", "is a symlink"),
        ("new.json", "is a symlink"),
        ("folder/program", "is behind the symlink"),
    ):
        done = check(fleet, "-o", f"json={fleet / name}")
        assert isinstance(done.exception, errors.Refused)
        assert message in str(done.exception)
    assert program.read_text() == "#!/bin/sh"
    assert not program.with_name("new").exists()


def test_links_below_the_current_directory_are_refused_without_git(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    done = program.in_this_process(("check", ".", "-o", "json=link"), tmp_path, os.environ)
    assert (done.code, "is a symlink" in done.err) == (1, True), done.err


def test_a_report_takes_the_place_of_an_older_one_and_keeps_its_mode(
    fleet: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    report.write_text("older" * 100_000)
    report.chmod(0o640)
    first = report.stat().st_ino
    check(fleet, "-o", f"json={report}")
    assert json.loads(report.read_text())["summary"]["error"] == 1
    assert (report.stat().st_mode & 0o777, report.stat().st_ino == first) == (0o640, False)
    assert {path.name for path in tmp_path.iterdir()} == {".git", "fleet", "report.json"}
    assert check(fleet, "-o", "json=/dev/null").return_value == 1
