"""A report of the job of a stranger's pull request, in the job that comments: JSON is data, and the
page is rendered here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gitops_ds import cli
from gitops_ds.checks.report import findings, formats
from gitops_ds.cli.comment import pull_request_comment
from gitops_ds.core import errors
from gitops_ds.core.finding import Severity
from tests.forges import comment_line
from tests.forges.servers import HEAD
from tests.forges.test_pull_request_comment import github
from tests.report import made
from tests.report.made import finding

HOSTILE = (
    "[click](https://evil.example) ![x](https://evil.example/x.png) <img "
    "src=https://evil.example> <a href=//evil.example>a</a> "
    "Closes #1 @acme/owners www.evil.example "
    "https://evil.example\n/merge\n</details><script>x</script> `` ` ``` \u202e\x1b[31m"
)


def report(**page: Any) -> dict[str, Any]:
    """What a check writes, as JSON."""
    reported = findings.with_changes(
        made.report(finding(), finding(line=9)),
        [findings.ReportedChange(("eu-1",), ("~ update x",))],
        {},
    )
    document = json.loads(formats.written(formats.ReportFormat.JSON, reported, made.about()))
    document["page"] |= {"head": HEAD[:12], **page}
    return document


def page(directory: Path, document: Any) -> str:
    file = directory / "report.json"
    file.write_text(json.dumps(document))
    return pull_request_comment.task(comment_line.args(str(file)), github(directory)).page.text


def hostile(value: Any) -> Any:
    """The document with every text a hostile one, but for the few that must have a form."""
    if isinstance(value, dict):
        kept = ("kind", "severity", "head", "apiVersion")
        return {key: below if key in kept else hostile(below) for key, below in value.items()}
    if isinstance(value, list):
        return [hostile(below) for below in value]
    return HOSTILE if isinstance(value, str) else value


def test_nothing_in_a_json_report_of_a_stranger_acts_on_its_reader(tmp_path: Path) -> None:
    document = hostile(report(notes=["a"], drift=[["eu-1", "b"]], checked={HOSTILE: 2}))
    shown = page(tmp_path, document)
    # What is not inside of a block or a span of code.
    outside = re.sub(r"(?s)(`{3,})[a-z]*\n.*?\n\1\n", "", shown)
    outside = re.sub(r"(?s)(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert "evil" in outside
    for sign in (
        "](",
        "![",
        "<img",
        "<a ",
        "<script",
        "https://e",
        "www.e",
        "#1",
        "@acme",
        "\x1b",
        "\u202e",
    ):
        assert sign not in outside, sign
    assert not re.search(r"(?m)^\s*/\w", outside)
    assert outside.count("<details>") == outside.count("</details>")


def test_the_page_of_a_json_report_is_the_one_that_the_check_writes(tmp_path: Path) -> None:
    reported = findings.with_changes(
        made.report(finding(), finding(line=9)),
        [
            findings.ReportedChange(
                ("eu-1",), ("~ update x\n    a: 1",), 1, 2, 3, "about a minute", "+1 core"
            )
        ],
        {},
        notes=["3 nodes"],
        drift=[("eu-1", ["≠ x"])],
    )
    about = made.about(head=HEAD[:12])
    (tmp_path / "report.md").write_text(
        formats.written(formats.ReportFormat.MARKDOWN, reported, about)
    )
    (tmp_path / "report.json").write_text(
        formats.written(formats.ReportFormat.JSON, reported, about)
    )
    pages = [
        pull_request_comment.task(comment_line.args(str(tmp_path / name)), github(tmp_path)).page
        for name in ("report.md", "report.json")
    ]
    assert pages[0].count == pages[1].count
    assert pages[0].loud(Severity.ERROR) == pages[1].loud(Severity.ERROR)
    plain = [re.sub(r"\]\(https://[^)]*\)|\[(?=`)|gitops-ds [\d.]+", "", one.text) for one in pages]
    assert plain[0] == plain[1]


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "{}",
        '{"kind": "CheckReport"}',
        '{"kind": "Plan", "findings": [], "page": {}}',
        "[" * 10**5,
        '{"a":' * 10**5,
    ],
)
def test_a_report_without_the_form_of_a_check_is_rejected(tmp_path: Path, data: str) -> None:
    (tmp_path / "report.json").write_text(data)
    with pytest.raises(errors.UsageError, match="write it with"):
        pull_request_comment.task(
            comment_line.args(str(tmp_path / "report.json")), github(tmp_path)
        )


def test_large_numbers_cost_nothing(tmp_path: Path) -> None:
    assert "objects" in page(
        tmp_path, report(files=10**18, checked={str(number): 10**18 for number in range(100)})
    )


def test_comment_accepts_the_report_of_a_check(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    fleet, report = str(tmp_path / "fleet/a"), tmp_path / "report.json"
    wanted = ["--forge", "gitea", "--url", "https://git.example.com", "--project", "a/b"]
    for words in (
        ["init", fleet],
        ["check", fleet, "-q", "-o", f"json={report}"],
        ["comment", "--report", str(report), *wanted, "--number", "7", "--sha", HEAD, "--dry-run"],
    ):
        alone: dict[str, str | None] = {"GITHUB_ACTIONS": None, "GITHUB_STEP_SUMMARY": None}
        done = CliRunner(env=alone).invoke(cli.cli, words, standalone_mode=False)
        assert done.exception is None
    assert "would comment on a/b#7" in done.output
    assert f"would set status gitops-ds/check: success (no findings) of {HEAD[:12]}" in done.output
