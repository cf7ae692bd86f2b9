"""Findings as the JSON document of schemas/check-report.schema.json. Pure."""

from __future__ import annotations

from typing import Any

from gitops_ds.checks.report.findings import Report, ReportContext, dumps
from gitops_ds.core import names
from gitops_ds.core.finding import Finding, Severity
from gitops_ds.core.objects import Key, show_path
from gitops_ds.kube.apimachinery import builtin_resources


def as_json(report: Report, about: ReportContext) -> str:
    """The document as text."""
    from gitops_ds.checks.report import comment_page

    count = report.count()
    return dumps(
        {
            "apiVersion": names.API_VERSION,
            "kind": "CheckReport",
            "summary": {
                **{s.value: count[s] for s in Severity},
                "files": report.file_count,
                "objects": len(report.checked),
            },
            "findings": [
                _one(*pair) for pair in zip(report.findings, report.fingerprints, strict=True)
            ],
            **report.document,
            "page": comment_page.data_of(report, about),
        }
    )


def _one(finding: Finding, fingerprint: str) -> dict[str, Any]:
    place, end, key = finding.place, finding.end, finding.object
    body: dict[str, Any] = {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "message": finding.message,
    }
    if place:
        last = end or place
        body |= {
            "file": place.file,
            "line": place.line,
            "column": place.column,
            "endLine": last.line,
            "endColumn": last.column,
        }
    else:
        body |= {"file": "", "line": 0, "column": 0}
    if key:
        body["object"] = _object(key)
    if finding.other:
        other, there = finding.other
        body["other"] = {"object": _object(other)}
        if there:
            body["other"] |= {"file": there.file, "line": there.line, "column": there.column}
    body |= {
        "environment": finding.cluster,
        "path": show_path(finding.path),
        "fingerprint": fingerprint,
    }
    if finding.fix:
        body["fix"] = {"description": finding.fix.words, "safe": finding.fix.safe}
    return body


def _object(key: Key) -> dict[str, str]:
    served_as = builtin_resources.RESOURCES.get((key.group, key.kind))
    # only the group of a custom kind is known
    version = served_as.api_version if served_as else key.group
    return {"apiVersion": version, "kind": key.kind, "namespace": key.namespace, "name": key.name}
