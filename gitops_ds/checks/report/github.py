"""Findings as workflow commands, which GitHub Actions shows beside the lines of a pull request.
Pure.

Sources: https://docs.github.com/actions/reference/workflow-commands-for-github-actions, and for the
escapes https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
"""

from __future__ import annotations

import hashlib
from typing import Final

from gitops_ds.checks.report import findings, text
from gitops_ds.core.finding import Finding, Severity
from gitops_ds.core.plain_text import counted

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
PER_LEVEL: Final = 10  # of each level and step; GitHub drops further ones


def as_commands(report: findings.Report, about: findings.ReportContext) -> str:
    """One line for each of the ten most important findings of a level. If there are more, a notice
    and the whole list follow.

    The list is enclosed in `stop-commands` with its own hash as the token. Equal reports have equal
    tokens, and no line can contain the token, because a file cannot contain its own hash.
    """
    shown = _most_important(report)
    lines = [_command(finding, report, about) for finding in shown]
    if len(shown) < len(report.findings):
        note = (
            f"{len(shown)} of {len(report.findings)} findings are shown here "
            f"({findings.severity_counts(report.count())}); the log of the step has all"
        )
        note += f": {about.full}" if about.full else ""
        lines.append(
            f"::notice title=gitops-ds::{_message(note)}\n::group::gitops-ds: "
            f"{counted(len(report.findings), 'finding')}\n"
        )
        lines.append(stopped(text.as_text(report)))
        lines.append("::endgroup::\n")
    return "".join(lines)


def stopped(lines: str) -> str:
    """The lines, enclosed so that the runner executes none of them."""
    token = hashlib.sha256(b"stop\0" + lines.encode("utf-8", "surrogatepass")).hexdigest()
    return f"::stop-commands::{token}\n{lines}::{token}::\n"


def _most_important(report: findings.Report) -> list[Finding]:
    """At most ten findings of a level in the order of the report, blocking ones first. One notice
    is reserved for the number of omitted findings.
    """
    ranked = sorted(
        enumerate(report.findings),
        key=lambda numbered: (
            findings.SEVERITY_ORDER[numbered[1].severity],
            not numbered[1].refused,
            numbered[0],
        ),
    )
    by_level = {s: [numbered for numbered in ranked if numbered[1].severity is s] for s in Severity}
    complete = all(len(level) <= PER_LEVEL for level in by_level.values())
    room = {s: PER_LEVEL - (s is Severity.INFO and not complete) for s in Severity}
    return [
        finding
        for _, finding in sorted(numbered for s in Severity for numbered in by_level[s][: room[s]])
    ]


def _command(finding: Finding, report: findings.Report, about: findings.ReportContext) -> str:
    rule = about.rules.get(finding.rule)
    properties: dict[str, str | int] = {}
    if finding.place:
        properties["file"] = report.file(finding)
        if finding.place.line:
            line, column, end_line, end_column = findings.span(finding)
            properties |= {"line": line, "endLine": end_line}
            if line == end_line:  # columns are valid within one line only
                properties |= {"col": column, "endColumn": end_column}
    properties["title"] = f"{finding.rule} {rule.summary}" if rule else finding.rule
    attributes = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = _message(findings.described(finding) + findings.fix_line(finding))
    return f"::{_LEVELS[finding.severity]} {attributes}::{message}\n"


def _message(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str | int) -> str:
    return _message(str(value)).replace(":", "%3A").replace(",", "%2C")
