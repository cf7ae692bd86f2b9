"""The page that a privileged job posts, from the report of an unprivileged one. Pure.

From a JSON report it is rendered here: all texts of the data become prose, code or blocks of code,
so that no link, image, HTML or reference in the data takes effect. A Markdown report is only
validated: it must have the format of `check -o markdown=FILE`. Bots and GitLab execute lines that
start with `/word`, and `@name` mentions a user; a zero-width character disables both, as in
`markdown`. Links, images and HTML remain, so a job that runs untrusted code writes JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import asdict

from gitops_ds.checks.report import findings, markdown, printable
from gitops_ds.checks.report.findings import (
    SEVERITY_ORDER,
    CheckedObject,
    Report,
    ReportContext,
    ReportedChange,
)
from gitops_ds.core.finding import Finding, Fix, Place, Severity
from gitops_ds.core.objects import Key
from gitops_ds.core.values import replace

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


def data_of(report: Report, about: ReportContext) -> dict[str, Any]:
    """The part `page` of the JSON report."""
    checked: dict[str, int] = {}
    for checked_object in report.checked:
        checked[checked_object.cluster] = checked.get(checked_object.cluster, 0) + 1
    return {
        "key": about.key,
        "head": about.head,
        "base": about.base,
        "files": report.file_count,
        "checked": checked,
        "changed": None if report.changed is None else list(map(asdict, report.changed)),
        "notes": list(report.notes),
        "drift": [list(lines) for lines in report.drift],
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


_BREAK: Final = "\u200b"
_MARKER = re.compile(r"<!-- gitops-ds:report key=([A-Za-z0-9._/-]{1,100}) v=1 -->")
_VERDICT = re.compile(
    r"\*\*gitops-ds check: (?:no findings|(\d{1,9}) errors?, (\d{1,9}) warnings?, (\d{1,9}) "
    r"info)\*\* in .*"
)
_HEAD = re.compile(r"<sub>Checked `([0-9a-f]{7,64})`[^<]*</sub>")
_COMMAND = re.compile(r"^(\s*)/(?=\w)", re.MULTILINE)
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


class CommentPage(msgspec.Struct, frozen=True):
    """A report to post: the key of its marker, the number of findings, the abbreviated ID of its
    commit (or empty), and the text below the marker.
    """

    key: str
    count: Mapping[Severity, int]
    head: str
    text: str

    def loud(self, fail_on: Severity) -> bool:
        """Whether a finding has this severity or a higher one."""
        return any(
            number and SEVERITY_ORDER[severity] <= SEVERITY_ORDER[fail_on]
            for severity, number in self.count.items()
        )


def validated(data: bytes) -> CommentPage:
    """The page. Raises ValueError with a message for content that `check -o markdown=FILE` did not
    write.
    """
    if len(data) > markdown.COMMENT:
        raise ValueError(f"it has more than {markdown.COMMENT:,} bytes")
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError("it is not valid UTF-8") from None
    marker = _MARKER.fullmatch(lines[0])
    verdict = _VERDICT.fullmatch(lines[1]) if marker and len(lines) > 1 else None
    if marker is None or verdict is None:
        raise ValueError("it does not start like a report")
    foot = _HEAD.fullmatch(next(line for line in reversed(lines) if line.strip()))
    return CommentPage(
        marker[1],
        {
            severity: int(number or 0)
            for severity, number in zip(Severity, verdict.groups(), strict=True)
        },
        foot[1] if foot else "",
        _harmless("\n".join(lines[1:]).rstrip() + "\n"),
    )


def _harmless(text: str) -> str:
    visible = "".join(char for char in text if char.isprintable() or char in "\n" + _BREAK)
    return _MENTION.sub(f"@{_BREAK}", _COMMAND.sub(rf"\1{_BREAK}/", visible))
