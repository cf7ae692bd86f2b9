"""The data of the Markdown page in the JSON report, from the check for the job that posts the
comment. Pure.

A privileged job renders the page from the data of an unprivileged job. All texts of the data become
prose, code or blocks of code, so that no link, image, HTML or reference in the data takes effect.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec.structs import asdict

from gitops_ds.model.finding import Finding, Fix, Place, Severity
from gitops_ds.model.objects import Key
from gitops_ds.model.values import replace
from gitops_ds.report import findings, markdown, printable
from gitops_ds.report.findings import CheckedObject, Report, ReportContext, ReportedChange

MOST: Final = 20_000_000  # bytes of a JSON report
_MANY: Final = 100_000  # the number of files and objects


class _CommentData(msgspec.Struct):
    key: str
    head: str
    base: str
    files: int
    checked: dict[str, int]
    changed: list[ReportedChange] | None
    notes: list[str]
    drift: list[tuple[str, str]]


class _Object(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    namespace: str
    name: str


class _Fix(msgspec.Struct):
    description: str


class _Finding(msgspec.Struct):
    rule: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    environment: str = ""
    object: _Object | None = None
    fix: _Fix | None = None


class _Document(msgspec.Struct):
    kind: Literal["CheckReport"]
    findings: list[_Finding]
    page: _CommentData


def of(report: Report, about: ReportContext) -> dict[str, Any]:
    """The part `page` of the JSON report."""
    checked: dict[str, int] = {}
    for one in report.checked:
        checked[one.cluster] = checked.get(one.cluster, 0) + 1
    return {
        "key": about.key,
        "head": about.head,
        "base": about.base,
        "files": len(report.files),
        "checked": checked,
        "changed": None if report.changed is None else list(map(asdict, report.changed)),
        "notes": list(report.notes),
        "drift": [list(one) for one in report.drift],
    }


def rendered(data: bytes, version: str) -> str:
    """The page of a JSON report. Raises ValueError with a message for a file that `check -o
    json=FILE` did not write.
    """
    if len(data) > MOST:
        raise ValueError(f"it has more than {MOST:,} bytes")
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a JSON report: {printable.line(str(error), 200)}") from None
    page = document.page
    objects = (
        CheckedObject(cluster, Key("", "", "", ""), "")
        for cluster, count in page.checked.items()
        for _ in range(min(max(count, 0), _MANY // max(len(page.checked), 1)))
    )
    files = {str(number): b"" for number in range(min(max(page.files, 0), _MANY))}
    report = findings.report(map(_finding, document.findings), files, objects)
    changed = None if page.changed is None else [_changed(group) for group in page.changed]
    report = findings.with_changes(
        report, changed, {}, notes=page.notes, drift=[(name, [text]) for name, text in page.drift]
    )
    return markdown.as_page(
        report, ReportContext(version=version, key=page.key, head=page.head, base=page.base)
    )


def _finding(data: _Finding) -> Finding:
    place = Place(data.file, max(data.line, 0), max(data.column, 0)) if data.file else None
    key = (
        Key(data.object.api_version, data.object.kind, data.object.namespace, data.object.name)
        if data.object
        else None
    )
    fix = Fix(data.fix.description, ()) if data.fix else None
    return Finding(
        data.rule, data.severity, data.message, place, object=key, cluster=data.environment, fix=fix
    )


def _changed(group: ReportedChange) -> ReportedChange:
    counts = {name: max(getattr(group, name), 0) for name in ("gained", "lost", "restarted")}
    return replace(group, **counts)
