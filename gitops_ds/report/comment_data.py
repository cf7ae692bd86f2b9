"""What the Markdown page of a report is made of, inside the JSON report: written by the check, read
by the job that comments. Pure.

So a page is rendered by a job with rights from the data of a job without: every text of it becomes
words, code or a block of code, and no link, image, HTML or reference that somebody wrote into the
data survives.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gitops_ds.model.finding import Finding, Fix, Place, Severity
from gitops_ds.model.objects import Key
from gitops_ds.report import findings, markdown
from gitops_ds.report.findings import CheckedObject, Report, ReportContext, ReportedChange

MOST: Final = 20_000_000  # bytes of a JSON report
_MANY: Final = 100_000  # files and objects that are counted


class _Group(msgspec.Struct):
    clusters: list[str]
    objects: list[str]
    gained: int = 0
    lost: int = 0
    restarted: int = 0
    time: str = ""
    cost: str = ""


class _CommentData(msgspec.Struct):
    key: str
    head: str
    base: str
    files: int
    checked: dict[str, int]
    changed: list[_Group] | None
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
    groups = (
        None
        if report.changed is None
        else [msgspec.structs.asdict(_group(group)) for group in report.changed]
    )
    return {
        "key": about.key,
        "head": about.head,
        "base": about.base,
        "files": len(report.files),
        "checked": checked,
        "changed": groups,
        "notes": list(report.notes),
        "drift": [list(one) for one in report.drift],
    }


def _group(group: ReportedChange) -> _Group:
    return _Group(
        list(group.clusters), list(group.objects), group.gained, group.lost, group.restarted, group.time, group.cost
    )  # fmt: skip


def rendered(data: bytes, version: str) -> str:
    """The page of a JSON report. Raises ValueError, in words, for anything that `check -o
    json=FILE` did not write.
    """
    if len(data) > MOST:
        raise ValueError(f"it has more than {MOST:,} bytes")
    try:
        told = msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON report: {findings.harmless(str(error), 200)}") from None
    page = told.page
    objects = (
        CheckedObject(cluster, Key("", "", "", ""), "")
        for cluster, count in page.checked.items()
        for _ in range(min(max(count, 0), _MANY // max(len(page.checked), 1)))
    )
    files = {str(number): b"" for number in range(min(max(page.files, 0), _MANY))}
    report = findings.report(map(_finding, told.findings), files, objects)
    changed = None if page.changed is None else [_changed(group) for group in page.changed]
    report = findings.with_changes(
        report, changed, {}, notes=page.notes, drift=[(name, [text]) for name, text in page.drift]
    )
    return markdown.as_page(
        report, ReportContext(version=version, key=page.key, head=page.head, base=page.base)
    )


def _finding(told: _Finding) -> Finding:
    place = Place(told.file, max(told.line, 0), max(told.column, 0)) if told.file else None
    key = (
        Key(told.object.api_version, told.object.kind, told.object.namespace, told.object.name)
        if told.object
        else None
    )
    fix = Fix(told.fix.description, ()) if told.fix else None
    return Finding(
        told.rule, told.severity, told.message, place, object=key, cluster=told.environment, fix=fix
    )


def _changed(group: _Group) -> ReportedChange:
    numbers = (max(group.gained, 0), max(group.lost, 0), max(group.restarted, 0))
    return ReportedChange(
        tuple(group.clusters), tuple(group.objects), *numbers, group.time, group.cost
    )
