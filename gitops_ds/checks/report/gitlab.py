"""Findings as GitLab's code quality report. Pure.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

from typing import Final

from gitops_ds.checks.change import object_changes
from gitops_ds.checks.cluster import node_sharing
from gitops_ds.checks.report.findings import Report, described, dumps, span
from gitops_ds.core.finding import Finding, Severity

_SEVERITIES: Final = {Severity.INFO: "info", Severity.WARNING: "minor", Severity.ERROR: "major"}
# Findings that affect the whole fleet: a changed selector, a port conflict, a removed agent.
_BLOCKERS: Final = frozenset(
    rule.id
    for rule in (object_changes.selector_stays, node_sharing.ports_apart, object_changes.stays)
)


def as_json(report: Report) -> str:
    """The report; an empty list without findings. Fingerprints are unique, since GitLab shows only
    one of two equal ones.
    """
    return dumps(
        [
            {
                "description": f"{finding.rule}: {described(finding)}",
                "check_name": f"gitops-ds/{finding.rule}",
                "fingerprint": fingerprint,
                "severity": severity(finding),
                "location": {"path": report.file(finding), "lines": {"begin": span(finding)[0]}},
            }
            for finding, fingerprint in zip(report.findings, report.fingerprints, strict=True)
        ]
    )


def severity(finding: Finding) -> str:
    """The severity in GitLab's terms."""
    if finding.rule in _BLOCKERS:
        return "blocker"
    if finding.rule.startswith("DS5") and finding.severity is Severity.ERROR:
        return "critical"
    return _SEVERITIES[finding.severity]
