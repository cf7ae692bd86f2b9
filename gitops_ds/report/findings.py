"""Findings for people and for programs: text with the source line and a caret, and the JSON of the contract. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitops_ds.kinds import served
from gitops_ds.model import names
from gitops_ds.model.finding import Finding, Severity
from gitops_ds.model.objects import show_path

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def at_or_above(findings: Sequence[Finding], severity: Severity) -> bool:
    """Whether any finding is as loud as that."""
    return any(_ORDER[finding.severity] <= _ORDER[severity] for finding in findings)


def as_text(findings: Sequence[Finding], files: Mapping[str, bytes], objects: int) -> Iterator[tuple[str, str | None]]:
    """Lines with their colour (None: plain), as compilers print them, and a summary."""
    for finding in findings:
        place = f"{finding.place}: " if finding.place else ""
        yield f"{place}{finding.severity} {finding.rule}: {finding.message}", _COLOURS[finding.severity]
        yield from ((line, None) for line in _excerpt(finding, files))
    count = Counter(finding.severity for finding in findings)
    told = ", ".join(f"{count[s]} {s}{'s' if count[s] != 1 and s is not Severity.INFO else ''}" for s in Severity)
    yield f"{len(files)} files, {objects} objects: {told}", None


def _excerpt(finding: Finding, files: Mapping[str, bytes]) -> Iterator[str]:
    place = finding.place
    if place is None or not place.line or place.file not in files:
        return
    lines = files[place.file].decode("utf-8", "replace").splitlines()
    if place.line > len(lines) or len(lines[place.line - 1]) > 200:
        return
    line = lines[place.line - 1]
    end = finding.end
    wide = end.column - place.column if end and end.line == place.line else 1
    yield f"  {place.line:>5} | {line}"
    yield f"  {'':>5} | {' ' * (place.column - 1)}{'^' * max(1, min(wide, len(line) - place.column + 1))}"


def as_json(findings: Sequence[Finding], files: int, objects: int) -> dict[str, Any]:
    """The report by schemas/check-report.schema.json."""
    count = Counter(finding.severity for finding in findings)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "CheckReport",
        "summary": {**{s.value: count[s] for s in Severity}, "files": files, "objects": objects},
        "findings": list(map(_as_json, findings)),
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    place, end, key = finding.place, finding.end, finding.object
    told: dict[str, Any] = {"rule": finding.rule, "severity": finding.severity.value, "message": finding.message}
    if place:
        told["file"] = place.file
        if place.line:
            last = end or place
            told |= {"line": place.line, "column": place.column, "endLine": last.line, "endColumn": last.column}
    if key:
        served_as = served.RESOURCES.get((key.group, key.kind))
        version = served_as.api_version if served_as else key.group  # of a custom kind the group is all that is known
        told["object"] = {"apiVersion": version, "kind": key.kind, "namespace": key.namespace, "name": key.name}
    told |= {"environment": finding.cluster, "path": show_path(finding.path), "fingerprint": fingerprint(finding)}
    return told


def fingerprint(finding: Finding) -> str:
    """Names the finding across commits: rule, object and path, never the line."""
    what = str(finding.object) if finding.object else (finding.place.file if finding.place else "")
    text = "\0".join((finding.rule, finding.cluster, what, show_path(finding.path), "" if finding.path else finding.message))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
