"""What every format starts from: order, fingerprints, and text that means nothing to a terminal."""

from __future__ import annotations

import random
import re
import unicodedata
from typing import Any

import pytest

from gitops_ds.checks.report import findings, formats, text
from gitops_ds.checks.report.findings import Report
from gitops_ds.core.finding import Finding, Fix, Place, Severity
from gitops_ds.core.values import replace
from tests.report import made
from tests.report.made import finding


@made.some_reports
def test_equal_input_gives_the_same_bytes_in_any_order(report: Report) -> None:
    shuffled = list(report.findings)
    random.Random(1).shuffle(shuffled)
    again = findings.report(shuffled, report.files, reversed(report.checked), root=report.root)
    plain = findings.report(report.findings, report.files, report.checked, root=report.root)
    for format in formats.ReportFormat:
        assert formats.written(format, again, made.about()) == formats.written(
            format, plain, made.about()
        )


def test_the_order_is_severity_file_line_rule() -> None:
    expected = [
        finding("DS999", Severity.ERROR, 1),
        finding("DS001", Severity.ERROR, 2),
        finding("DS002", Severity.ERROR, 2),
        finding("DS001", Severity.ERROR, 10),
        finding("DS001", Severity.ERROR, 1, place=Place("b.yaml", 1, 1)),
        finding("DS001", Severity.WARNING, 1),
        finding("DS001", Severity.INFO, 1),
    ]
    assert list(made.report(*reversed(expected)).findings) == expected


def test_a_finding_is_reported_once() -> None:
    assert len(made.report(finding(), finding()).findings) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(
            finding(path=("spec",)), place=Place(made.FILE, 99, 1), end=Place(made.FILE, 99, 7)
        ),
        finding(path=("spec",), message="other words", severity=Severity.INFO),
    ],
)
def test_a_fingerprint_survives_another_line_other_words_and_another_severity(
    other: Finding,
) -> None:
    assert findings.fingerprint(other) == findings.fingerprint(finding(path=("spec",)))


@pytest.mark.parametrize(
    "message", ["a key again, first on line 7", "a key again, first on line 12"]
)
def test_a_fingerprint_of_a_message_does_not_know_its_lines(message: str) -> None:
    assert findings.fingerprint(finding(message=message)) == findings.fingerprint(
        finding(message="a key again, first on line 3")
    )


@pytest.mark.parametrize(
    "more",
    [
        {"rule": "DS201"},
        {"cluster": "east"},
        {"path": ("spec", "x")},
        {"object": replace(made.AGENT, name="b")},
    ],
)
def test_a_fingerprint_differs_by_rule_cluster_object_and_path(more: dict[str, Any]) -> None:
    assert findings.fingerprint(replace(finding(path=("spec",)), **more)) != findings.fingerprint(
        finding(path=("spec",))
    )


def test_equal_fingerprints_are_numbered_in_order() -> None:
    twins = [finding(line=line, path=("spec",)) for line in (1, 2, 3)]
    first = findings.fingerprints(twins)
    assert len(set(first)) == 3
    assert first[0] == findings.fingerprint(twins[0])
    assert (
        findings.fingerprints(
            [replace(twin, place=Place(made.FILE, 50 + at, 1)) for at, twin in enumerate(twins)]
        )
        == first
    )


@made.some_reports
def test_fingerprints_are_unique(report: Report) -> None:
    assert len(set(report.fingerprints)) == len(report.fingerprints) == len(report.findings)


@made.some_reports
def test_no_control_character_reaches_a_terminal(report: Report) -> None:
    printed = text.as_text(report)
    assert not {unicodedata.category(letter) for letter in printed if letter != "\n"} & {
        "Cc",
        "Cs",
        "Zl",
        "Zp",
    }
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", printed)
    printed.encode()


# Formats without workflow commands of their own; tests/report/test_forges.py has those of GitHub.
PLAIN = [format for format in formats.ReportFormat if format is not formats.ReportFormat.GITHUB]


@made.some_reports
def test_no_line_of_a_report_is_a_workflow_command(report: Report) -> None:
    for format in PLAIN:
        holds_no_command(formats.written(format, report, made.about()))


def holds_no_command(written: str) -> None:
    assert list(made.commands(written)) == []
    assert not re.search(r"^\s*::\w", written, re.MULTILINE)


@pytest.mark.parametrize("format", PLAIN)
@pytest.mark.parametrize("command", ["::error::x", "  ::add-mask::y", "::stop-commands::z"])
def test_no_part_of_a_finding_starts_a_workflow_command(
    format: formats.ReportFormat, command: str
) -> None:
    text = f"a\n{command}\r\n{command}"
    place = Place(command, 1, 1)
    evil = [
        finding(message=text, object=None, place=Place(f"{number}{command}", 1, 1), path=(text,))
        for number in range(2)
    ]
    evil += [
        finding(severity=severity, message=command, place=place, fix=Fix(text, ()), cluster=text)
        for severity in Severity
    ]
    report = made.report(*evil, suppressed=[(evil[0], text)], files={command: text.encode()})
    holds_no_command(formats.written(format, report, made.about()))


def test_the_excerpt_has_its_caret_under_the_value() -> None:
    report = made.report(
        finding(line=1, place=Place("a.yaml", 1, 7), end=Place("a.yaml", 1, 10)),
        files={"a.yaml": b"spec: abc # \x1b[0m\n"},
    )
    lines = [line for line, _ in text.lines(report)]
    assert lines[:2] == ["a.yaml:1:7: error DS202: no. 1", "      1 | spec: abc # \\x1b[0m"]
    shown = made.report(
        finding(line=1, place=Place("a.yaml", 1, 7), end=Place("a.yaml", 1, 10)),
        files={"a.yaml": b"spec: abc\n"},
    )
    assert [line for line, _ in text.lines(shown)][2] == "        |       ^^^"


def test_a_fix_and_related_lines_are_below_the_message() -> None:
    report = made.report(finding(message="one\n::two", fix=Fix("take\n0", ())))
    assert text.as_text(report).splitlines()[1:3] == ["        | : :two", "        = fix: take 0"]


def test_a_message_of_a_megabyte_is_cut() -> None:
    assert len(made.report(finding(message="x" * 10**6)).findings[0].message) == 2_000


def test_every_severity_is_compared_with_fail_on() -> None:
    assert findings.at_or_above([finding(severity=Severity.WARNING)], Severity.INFO)
    assert findings.at_or_above([finding(severity=Severity.WARNING)], Severity.WARNING)
    assert not findings.at_or_above([finding(severity=Severity.WARNING)], Severity.ERROR)
