"""Findings as Markdown: a comment on a pull request, or the summary of a step. Pure.

Content of a repository must not become a mention, a reference, a link, an image or HTML in a
comment. `prose` disables such words with a zero-width character and escapes the rest; `code` and
`fence` quote.

Sources: https://github.github.com/gfm/ and https://docs.gitlab.com/user/markdown/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gitops_ds.checks.report import printable
from gitops_ds.checks.report.findings import Report, ReportContext, ReportedChange, severity_counts
from gitops_ds.core.finding import Finding, Severity
from gitops_ds.core.plain_text import counted, listed

# In bytes. GitHub limits a comment to 65,536 characters, which have at least one byte each.
COMMENT: Final = 60_000
# GitHub rejects a summary of a step above 1 MiB.
SUMMARY: Final = 1_000_000

_FOOTER: Final = 2_000  # reserved for the last lines
_LONGEST_TITLE: Final = 300


class Section(msgspec.Struct, frozen=True):
    """A heading and blocks of Markdown, of which the last ones are omitted if the page is too long.

    A block is omitted as a whole, so its markup stays balanced. `head` belongs to the first block
    (the header of a table).
    """

    title: str
    blocks: tuple[str, ...]
    head: str = ""
    folded: bool = False


def as_page(
    report: Report, about: ReportContext, *, fleet: Sequence[Section] = (), most: int = COMMENT
) -> str:
    """The report in at most that many bytes. The least important parts are omitted first: diffs,
    then warnings, the fleet, errors.

    `fleet` is the effect of the change on nodes and rollouts.
    """
    by_severity = _blocks(report, about)
    sections = (
        _verdicts(report),
        Section("Errors", by_severity[Severity.ERROR]),
        *fleet,
        Section("Warnings", by_severity[Severity.WARNING]),
        Section("Info", by_severity[Severity.INFO], folded=True),
        *map(_diff, report.changed or ()),
        *(
            Section(
                f"Beside the change: {cluster or 'the cluster'} differs from the base"[
                    :_LONGEST_TITLE
                ],
                (fence(text),),
                folded=True,
            )
            for cluster, text in report.drift
        ),
    )
    begin = f"{marker(about.key)}\n{_verdict(report)}"
    body, left_out = _fitting(sections, most - len(begin.encode()) - _FOOTER)
    page = begin + body + _end(report, about, left_out)
    return page if len(page.encode()) <= most else begin


def marker(key: str) -> str:
    """The hidden first line, which identifies the comment."""
    return (
        "<!-- gitops-ds:report "
        f"key={re.sub(r'[^A-Za-z0-9._/]+', '-', key)[:100].strip('-') or 'check'} v=1 -->"
    )


def _verdict(report: Report) -> str:
    counts = severity_counts(report.count()) if report.findings else "no findings"
    size = f"{counted(report.file_count, 'file')}, {counted(len(report.checked), 'object')}"
    return f"**gitops-ds check: {counts}** in {size}.{_summary(report)}\n"


def _summary(report: Report) -> str:
    """The effect of the change in a sentence; empty without a base."""
    if report.changed is None:
        return ""
    if not report.changed:
        return " The change changes no object."

    def total(count: Callable[[ReportedChange], int]) -> int:
        return sum(count(change) * max(1, len(change.clusters)) for change in report.changed or ())

    effects = (
        (total(lambda change: change.gained), "adds pods to"),
        (total(lambda change: change.lost), "removes pods from"),
        (total(lambda change: change.restarted), "restarts pods on"),
    )
    parts = [f"changes {counted(total(lambda change: len(change.objects)), 'object')}"]
    parts += [f"{verb} {counted(number, 'node')}" for number, verb in effects if number]
    first, last = parts[:-1], parts[-1]
    return f" The change {', '.join(first)} and {last}." if first else f" The change {last}."


def _verdicts(report: Report) -> Section:
    """The table of clusters, empty for a repository without clusters and changes."""
    objects = Counter(checked_object.cluster for checked_object in report.checked)
    count = Counter((finding.cluster, finding.severity) for finding in report.findings)
    changed = {
        name: group
        for group in report.changed or ()
        for name in (group.clusters if len(objects) > 1 else ("",))
    }
    clusters = sorted({*objects, *changed, *(cluster for cluster, _ in count)})
    columns = ("cluster", "objects", *(_CHANGE if changed else ()), "errors", "warnings", "info")
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    rows = []
    for name in clusters if any(clusters) or changed else ():
        cells = (_change(changed.get(name)) if changed else ()) + tuple(
            count[name, severity] for severity in Severity
        )
        rows.append(
            f"| {prose(name) or 'all'} | {objects[name]} | {' | '.join(map(str, cells))} |\n"
        )
    return Section("", tuple(rows), head)


_CHANGE: Final = ("changed", "nodes gained", "nodes lost", "nodes restarted", "rollout", "requests")


def _change(group: ReportedChange | None) -> tuple[int | str, ...]:
    if group is None:
        return (0, 0, 0, 0, "", "")
    return (
        len(group.objects),
        group.gained,
        group.lost,
        group.restarted,
        prose(group.time),
        prose(group.cost),
    )


def _diff(group: ReportedChange) -> Section:
    named = list(filter(None, group.clusters))
    where = (
        f" in {named[0]}"
        if len(named) == 1
        else f", the same in {len(named)} clusters: {', '.join(named)}"
        if named
        else ""
    )
    return Section(
        f"Changes{where}"[:_LONGEST_TITLE],
        tuple(fence(text, "diff") for text in group.objects),
        folded=True,
    )


def _blocks(report: Report, about: ReportContext) -> Mapping[Severity, tuple[str, ...]]:
    """The findings as list items; equal findings of several clusters share an item."""
    same: dict[Any, tuple[Finding, list[str]]] = {}
    for finding in report.findings:
        what = (
            finding.rule,
            finding.severity,
            finding.message,
            finding.place,
            finding.object,
            finding.path,
        )
        same.setdefault(what, (finding, []))[1].append(finding.cluster)
    items: dict[Severity, list[str]] = {severity: [] for severity in Severity}
    for finding, clusters in same.values():
        items[finding.severity].append(
            _item(finding, [name for name in clusters if name], report, about)
        )
    return {severity: tuple(held) for severity, held in items.items()}


def _item(finding: Finding, clusters: Sequence[str], report: Report, about: ReportContext) -> str:
    # otherwise the message names the object
    named = finding.object and not finding.message.startswith(str(finding.object))
    parts = [
        _place(finding, report, about),
        f"**{prose(finding.rule)}**",
        code(str(finding.object)) if named else "",
    ]
    fix = f". Fix: {prose(finding.fix.words)}" if finding.fix else ""
    shown = listed(clusters, 5, code)
    return (
        f"- {' '.join(filter(None, parts))}: "
        f"{prose(finding.message)}{fix}{f' (on {shown})' if clusters else ''}\n"
    )


def _place(finding: Finding, report: Report, about: ReportContext) -> str:
    if finding.place is None:
        return ""
    line = f":{finding.place.line}" if finding.place.line else ""
    name = code(report.file(finding) + line)
    return (
        f"[{name}]({about.permalink}/{quote(report.file(finding))}{line.replace(':', '#L')})"
        if about.permalink
        else name
    )


def _fitting(sections: Iterable[Section], room: int) -> tuple[str, int]:
    """The sections that fit in their order, and the number of omitted blocks. The first block that
    does not fit ends the page.
    """
    parts: list[str] = []
    left_out = 0
    for section in sections:
        begin, end = _frame(section)
        taken: list[str] = []
        for block in section.blocks:
            cost = len(block.encode()) + (0 if taken else len((begin + end).encode()))
            if left_out or cost > room:
                left_out += 1
                continue
            room -= cost
            taken.append(block)
        if taken:
            parts += [begin, *taken, end]
    return "".join(parts), left_out


def _frame(section: Section) -> tuple[str, str]:
    title = prose(section.title)
    if section.folded:
        return f"\n<details><summary>{title}</summary>\n\n{section.head}", "\n</details>\n"
    return (f"\n### {title}\n\n" if title else "\n") + section.head, ""


def _end(report: Report, about: ReportContext, left_out: int) -> str:
    lines = []
    if left_out:
        full = f": {about.full}" if about.full else ""
        lines.append(
            f"Too long for one page: {left_out} more entries, of {len(report.findings)} findings "
            f"in all, full report{full}."
        )
    lines += [f"<sub>{prose(note)}</sub>" for note in report.notes]
    facts = [
        f"Checked {code(about.head)}" if about.head else "",
        f"against {code(about.base)}" if about.base else "",
        f"live data of {prose(about.live)}" if about.live else "",
        f"gitops-ds {prose(about.version)}" if about.version else "",
    ]
    lines.append(f"<sub>{'; '.join(filter(None, facts))}</sub>" if any(facts) else "")
    return "".join(f"\n{line}\n" for line in lines if line)


# The prefixes of links and mentions of forges: @user, #1, !1, $snippet, %milestone, ~label, &epic,
# ^alert, :emoji:, GH-1, a URL. A code span or a character after the prefix disables them; an
# escape or an entity does not.
_SIGN = re.compile(r"[@#!$%&~^:](?=\S)|\bGH-(?=\d)|\bwww(?=\.)|(?<=:)/(?=/)", re.IGNORECASE)
_BREAK: Final = "\u200b"
_MEANING = re.compile(r"[\\`*_{}\[\]()|~$]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def prose(text: str) -> str:
    """The text as words of a sentence or a table cell, without effect as Markdown."""
    broken = _SIGN.sub(lambda match: match.group() + _BREAK, " ".join(text.split()))
    return re.sub("[&<>]", lambda match: _ENTITIES[match.group()], _MEANING.sub(r"\\\g<0>", broken))


def code(text: str) -> str:
    """A code span, with a fence that is longer than any in its content."""
    text = " ".join(text.split())
    if not text:
        return ""
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(text: str, language: str = "") -> str:
    """A block of code, with a fence that is longer than any in its content."""
    text = printable.block(text)
    ticks = "`" * max(_longest_run(text) + 1, 3)
    return f"{ticks}{language}\n{text if text.endswith(chr(10)) else text + chr(10)}{ticks}\n"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
