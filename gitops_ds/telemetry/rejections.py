"""The texts of a rejected commit. They quote findings, whose secret values are redacted. Pure."""

from __future__ import annotations

from gitops_ds.model.events.commits import CommitRejected
from gitops_ds.model.objects import short, template_of
from gitops_ds.redaction import report

_QUOTED = 3  # findings in a notification


def text(event: CommitRejected) -> str:
    """The line in the log."""
    findings = event.findings
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    what = template_of(event.commit or "") or f"commit {short(event.commit)}"
    return f"{what} is not applied: {report.line_of(findings[0])}{more}"


def kube_text(event: CommitRejected) -> str:
    """The message of the Kubernetes event."""
    return f"{short(event.commit)} is not applied: {report.line_of(event.findings[0])}"


def notification(event: CommitRejected) -> str:
    """The text of the notification."""
    findings = event.findings
    quoted = "; ".join(map(report.line_of, findings[:_QUOTED]))
    more = f"; and {len(findings) - _QUOTED} more" if len(findings) > _QUOTED else ""
    return f"commit {short(event.commit)} is not applied: {quoted}{more}"
