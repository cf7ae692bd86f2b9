"""Findings as SARIF 2.1.0 for code scanning and editors. Pure.

Sources: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html, and GitHub's limits:
https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from gitops_ds.checks.report.findings import (
    HOME,
    SEVERITY_ORDER,
    Replacement,
    Report,
    ReportContext,
    RuleText,
    dumps,
    fix_line,
    span,
)
from gitops_ds.core.finding import Finding, Severity

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEMS: Final = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "recommendation",
}
_DANGER: Final = {Severity.ERROR: "8.0", Severity.WARNING: "5.5", Severity.INFO: "2.0"}
# GitHub accepts 25,000 and keeps 5,000. The check omits the least important ones and reports their
# number.
MOST_RESULTS: Final = 5_000
LARGEST: Final = 10_000_000  # bytes, when compressed
_LONGEST: Final = 1_024
_LONGEST_NAME: Final = 255

# By the first digit of a rule's number.
_FAMILIES: Final = {
    "0": ("the file, its schema and the API", "schema"),
    "1": ("selectors and identity", "selector"),
    "2": ("rollouts", "rollout"),
    "3": ("scheduling and coverage", "scheduling"),
    "4": ("containers", "container"),
    "5": ("host access and security", "security"),
    "6": ("the whole fleet", "fleet"),
    "7": ("what a change does", "change"),
    "8": ("templates and environments", "template"),
    "9": ("the check itself", "check"),
}


def as_json(report: Report, about: ReportContext, largest: int = LARGEST) -> str:
    """The log. `results` exists even without findings, so that the upload of a clean run closes
    open alerts.
    """
    used = {finding.rule for finding in report.findings}
    rules = [about.rules.get(id) or _unknown(id, report) for id in sorted({*about.rules, *used})]
    index = {rule.id: position for position, rule in enumerate(rules)}
    driver = {
        "name": "gitops-ds",
        "semanticVersion": about.version or "0.0.0",
        "informationUri": HOME,
        "rules": list(map(_rule, rules)),
    }
    rows = zip(report.findings, report.fingerprints, report.replacements, strict=True)
    results = [
        _result(finding, fingerprint, report, index)
        | _related(finding, report)
        | _fixes(finding, replacements, report)
        for finding, fingerprint, replacements in islice(rows, MOST_RESULTS)
    ]
    text = _log(driver, about, results, len(report.findings))
    while len(text) > largest and len(gzip.compress(text.encode(), 1)) > largest:
        results = results[: len(results) // 2]
        text = _log(driver, about, results, len(report.findings))
    return text


def _log(
    driver: Mapping[str, Any], about: ReportContext, results: Sequence[Any], total: int
) -> str:
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"gitops-ds/{quote(about.scope)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(len(results), total)],
        "results": results,
    }
    return dumps(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [run],
        }
    )


def _invocation(shown: int, total: int) -> dict[str, Any]:
    if shown == total:
        return {"executionSuccessful": True}
    message = (
        f"{shown} of {total} findings are in this file, the most severe; gitops-ds check prints all"
    )
    return {
        "executionSuccessful": True,
        "toolExecutionNotifications": [{"level": "warning", "message": {"text": message}}],
    }


def _unknown(id: str, report: Report) -> RuleText:
    """The description of a rule without a row in the table, from its findings."""
    findings = [finding for finding in report.findings if finding.rule == id]
    loudest = min((finding.severity for finding in findings), key=SEVERITY_ORDER.__getitem__)
    return RuleText(
        id, f"{id}: {_family(id)[0]}", loudest, refused=any(finding.refused for finding in findings)
    )


def _family(id: str) -> tuple[str, str]:
    return _FAMILIES.get(id.removeprefix("DS")[:1], _FAMILIES["9"])


def _rule(rule: RuleText) -> dict[str, Any]:
    page = rule.page or f"# {rule.id}\n\nA rule about {_family(rule.id)[0]}.\n"
    properties: dict[str, Any] = {
        "tags": ["kubernetes", _family(rule.id)[1]],
        "precision": "very-high" if rule.refused else "high",
    }
    if rule.id.startswith("DS5"):
        properties["security-severity"] = _DANGER[rule.severity]
    else:
        properties["problem.severity"] = _PROBLEMS[rule.severity]
    return {
        "id": rule.id,
        "name": rule.summary[:_LONGEST_NAME],
        "shortDescription": {"text": rule.summary[:_LONGEST]},
        "fullDescription": {"text": _introduction(page)[:_LONGEST] or rule.summary[:_LONGEST]},
        "help": {"text": page, "markdown": page},
        "helpUri": f"{HOME}/blob/main/"
        + (f"gitops_ds/checks/pages/{rule.id}.md" if rule.page else "docs/rules.md"),
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": properties,
    }


def _introduction(page: str) -> str:
    """The introduction of a page as plain text: its first paragraph."""
    body = page.partition("\n")[2].partition("\n## ")[0].strip()
    return " ".join(body.partition("\n\n")[0].split())


def _result(
    finding: Finding, fingerprint: str, report: Report, index: Mapping[str, int]
) -> dict[str, Any]:
    physical = {
        "artifactLocation": _artifact(report.file(finding)),
        "region": _region(*span(finding)),
    }
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.object:
        location["logicalLocations"] = [
            {"fullyQualifiedName": str(finding.object), "kind": "resource"}
        ]
    where = f"\nOn {finding.cluster}." if finding.cluster else ""
    return {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}{fix_line(finding)}{where}" or finding.rule},
        "locations": [location],
        "partialFingerprints": {"primaryLocationLineHash": fingerprint},
    }


def _related(finding: Finding, report: Report) -> dict[str, Any]:
    """The place of the second object of a finding."""
    key, place = finding.other or (None, None)
    if place is None:
        return {}
    physical = {
        "artifactLocation": _artifact(report.within(place.file)),
        "region": {"startLine": max(place.line, 1), "startColumn": max(place.column, 1)},
    }
    return {
        "relatedLocations": [
            {"id": 1, "physicalLocation": physical, "message": {"text": str(key) or finding.rule}}
        ]
    }


def _fixes(finding: Finding, replacements: Sequence[Replacement], report: Report) -> dict[str, Any]:
    """The fix, if the replaced characters are known."""
    if not replacements or not finding.fix:
        return {}
    changes = [
        {
            "artifactLocation": _artifact(report.within(file)),
            "replacements": [
                {
                    "deletedRegion": _region(*replacement.start, *replacement.end),
                    "insertedContent": {"text": replacement.text},
                }
                for replacement in replacements
                if replacement.file == file
            ],
        }
        for file in dict.fromkeys(replacement.file for replacement in replacements)
    ]
    return {
        "fixes": [
            {"description": {"text": finding.fix.words or finding.rule}, "artifactChanges": changes}
        ]
    }


def _artifact(file: str) -> dict[str, str]:
    return {"uri": quote(file)}


def _region(line: int, column: int, end_line: int, end_column: int) -> dict[str, int]:
    return {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
