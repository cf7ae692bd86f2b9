"""The findings of a check, prepared for all formats: sorted, with fingerprints, printable, without
secrets. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
import orjson

from gitops_ds.checks.report import printable
from gitops_ds.core.finding import Finding, Place, Severity
from gitops_ds.core.objects import Key, show_path
from gitops_ds.core.plain_text import counted
from gitops_ds.core.redaction import report as redaction_report
from gitops_ds.core.redaction import texts
from gitops_ds.core.values import replace

HOME: Final = "https://github.com/gitops-ds/gitops-ds"
# The file of findings without one, in formats that require a file.
NOWHERE: Final = "gitops-ds.yaml"
SEVERITY_ORDER: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}

# The sort key of objects: faster than comparing pairs.
_PARTS: Final = attrgetter("cluster", "key.group", "key.kind", "key.namespace", "key.name", "file")


class CheckedObject(msgspec.Struct, frozen=True):
    """A checked object, its cluster, and the file that defines it."""

    cluster: str
    key: Key
    file: str


class RuleText(msgspec.Struct, frozen=True):
    """The ID, title, default severity and page (Markdown) of a rule."""

    id: str
    summary: str
    severity: Severity
    refused: bool
    page: str = ""


class ReportContext(msgspec.Struct, frozen=True):
    """The metadata of a report.

    `key` distinguishes the reports of a pull request, `scope` (the clusters) the runs of code
    scanning. `permalink` is the URL prefix of the files of the commit, `full` the URL of the whole
    report. `at` is the time of the commit in ISO 8601. Empty fields are omitted.
    """

    version: str = ""
    key: str = "check"
    scope: str = "all"
    head: str = ""
    base: str = ""
    live: str = ""
    permalink: str = ""
    full: str = ""
    at: str = ""
    fail_on: Severity = Severity.ERROR
    rules: Mapping[str, RuleText] = msgspec.field(default_factory=dict)


class ReportedChange(msgspec.Struct, frozen=True):
    """A change that is the same on some clusters: the diffs of the changed objects, and the number
    of nodes that gain, lose or restart a pod.

    `time` is the duration of the slowest rollout, `cost` the additional requests; both are empty if
    unknown.
    """

    clusters: tuple[str, ...]
    objects: tuple[str, ...]
    gained: int = 0
    lost: int = 0
    restarted: int = 0
    time: str = ""
    cost: str = ""


class Replacement(msgspec.Struct, frozen=True):
    """A part of a file that a fix replaces, from a line and column (starting at 1) to an exclusive
    end, and the new text.
    """

    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


class Report(msgspec.Struct, frozen=True):
    """Printable findings by severity, file, line and rule, and their fingerprints in the same
    order.

    `root` is the directory in the repository that file names are relative to, empty at the top.
    `suppressed` are suppressed findings with the reason. `changed` is None without a base;
    `document` are further keys for JSON. `replacements` are the changes of the fixes, in the order
    of the findings; `fixable` is the number of findings that `--fix` fixes, and that of the
    additional ones of `--fix-unsafe`. `files_read` is the number of files that decide what is
    applied; None: all. `notes` name the parts that were not checked; `drift` is the difference from
    the base, by cluster.
    """

    findings: tuple[Finding, ...]
    fingerprints: tuple[str, ...]
    files: Mapping[str, bytes]
    checked: tuple[CheckedObject, ...] = ()
    hidden: redaction_report.ReportSecrets = msgspec.field(
        default_factory=redaction_report.ReportSecrets
    )
    root: str = ""
    suppressed: tuple[tuple[Finding, str], ...] = ()
    changed: tuple[ReportedChange, ...] | None = None
    document: Mapping[str, Any] = msgspec.field(default_factory=dict)
    replacements: tuple[tuple[Replacement, ...], ...] = ()
    fixable: tuple[int, int] = (0, 0)
    files_read: int | None = None
    notes: tuple[str, ...] = ()
    drift: tuple[tuple[str, str], ...] = ()

    @property
    def file_count(self) -> int:
        """The number of files that were read."""
        return len(self.files) if self.files_read is None else self.files_read

    def file(self, finding: Finding) -> str:
        """The file of a finding, relative to the top of the repository as forges require."""
        return self.within(finding.place.file if finding.place else NOWHERE)

    def within(self, name: str) -> str:
        """A file of the report, relative to the top of the repository."""
        return f"{self.root}/{name}" if self.root else name

    def count(self) -> Counter[Severity]:
        """The number of findings by severity."""
        return Counter(finding.severity for finding in self.findings)


def report(
    findings: Iterable[Finding],
    files: Mapping[str, bytes],
    checked: Iterable[CheckedObject] = (),
    *,
    hidden: redaction_report.ReportSecrets | None = None,
    root: str = "",
    suppressed: Iterable[tuple[Finding, str]] = (),
    replacements: Mapping[Finding, Sequence[Replacement]] | None = None,
) -> Report:
    """A report. It does not depend on the order of the findings."""
    hidden = hidden or redaction_report.ReportSecrets()
    raw = in_order(findings)
    answered = sorted(suppressed, key=lambda one: _order(one[0]))
    return Report(
        tuple(printable.finding_texts(finding, hidden) for finding in raw),
        tuple(fingerprints(raw)),
        files,
        tuple(sorted(map(_printable_object, checked), key=_PARTS)),
        hidden,
        printable.line(root),
        tuple(
            (printable.finding_texts(finding, hidden), printable.line(hidden.within(reason)))
            for finding, reason in answered
        ),
        replacements=tuple(
            _without_secrets((replacements or {}).get(finding, ()), files, hidden)
            if replacements and not hidden.at(finding)
            else ()
            for finding in raw
        ),
    )


def _without_secrets(
    some: Sequence[Replacement], files: Mapping[str, bytes], hidden: redaction_report.ReportSecrets
) -> tuple[Replacement, ...]:
    """The replacements of a fix; none if one of them contains a secret, since a partial fix is
    invalid.
    """
    if any(
        hidden.within(replacement.text) != replacement.text
        or not redaction_report.quotable(files.get(replacement.file, b""))
        for replacement in some
    ):
        return ()
    return tuple(some)


def with_changes(
    report: Report,
    changed: Iterable[ReportedChange] | None,
    document: Mapping[str, Any],
    *,
    notes: Iterable[str] = (),
    drift: Iterable[tuple[str, Iterable[str]]] = (),
) -> Report:
    """The report with the effect of the change (None: no base), the known nodes, and the drift of
    the clusters.
    """
    printable_changes = (
        replace(
            change,
            clusters=tuple(map(printable.line, change.clusters)),
            time=printable.line(change.time),
            cost=printable.line(change.cost),
            objects=tuple(printable.block(report.hidden.within(text)) for text in change.objects),
        )
        for change in changed or ()
    )
    hidden: dict[str, Any] = _within(document, report.hidden)
    differing = (
        (printable.line(cluster), printable.block(report.hidden.within("\n".join(lines))))
        for cluster, lines in drift
    )
    return replace(
        report,
        changed=None if changed is None else tuple(printable_changes),
        document=hidden,
        notes=tuple(printable.line(report.hidden.within(note)) for note in notes),
        drift=tuple(differing),
    )


def _within(document: Any, hidden: redaction_report.ReportSecrets) -> Any:
    if isinstance(document, Mapping):
        return {_within(key, hidden): _within(below, hidden) for key, below in document.items()}
    if isinstance(document, list | tuple):
        return [_within(below, hidden) for below in document]
    return (
        printable.without_lone_surrogates(hidden.within(document))
        if isinstance(document, str)
        else document
    )


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Unique findings by severity, file, line and rule. `fingerprints` numbers equal findings in
    this order.
    """
    by_order: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        by_order.setdefault(_order(finding), finding)
    return [by_order[order] for order in sorted(by_order)]


def _order(finding: Finding) -> tuple[Any, ...]:
    place = finding.place or Place("")
    where = (SEVERITY_ORDER[finding.severity], place.file, place.line, finding.rule, place.column)
    return (
        *where,
        finding.cluster,
        str(finding.object or ""),
        show_path(finding.path),
        finding.message,
        not finding.refused,
    )


def at_or_above(findings: Iterable[Finding], severity: Severity) -> bool:
    """Whether a finding has this severity or a higher one."""
    return any(SEVERITY_ORDER[finding.severity] <= SEVERITY_ORDER[severity] for finding in findings)


def fingerprint(finding: Finding) -> str:
    """The identity of a finding across commits: rule, cluster, object and path, but not the line.

    Without a path, the message without line numbers replaces it.
    """
    what = str(finding.object) if finding.object else (finding.place.file if finding.place else "")
    subject = (
        "" if finding.path else _LINES.sub(r"\1", texts.shapes(" ".join(finding.message.split())))
    )
    return _digest(
        "\0".join((finding.rule, finding.cluster, what, show_path(finding.path), subject))
    )


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """The fingerprints of findings in their order; equal ones are numbered."""
    seen: Counter[str] = Counter()
    hashes = []
    for identity in map(fingerprint, findings):
        hashes.append(_digest(f"{identity}\0{seen[identity]}") if seen[identity] else identity)
        seen[identity] += 1
    return hashes


# "line 12", "12:5" and "column 5" change with every edit above them.
_LINES = re.compile(r"\b(lines? |columns? |ya?ml:)[\d:]+")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _printable_object(checked: CheckedObject) -> CheckedObject:
    return CheckedObject(
        printable.line(checked.cluster), printable.key(checked.key), printable.file(checked.file)
    )


def dumps(document: Any) -> str:
    """A JSON document as text. `##[…]`, a command to some CI runners, is escaped."""
    return (
        orjson.dumps(document, option=orjson.OPT_INDENT_2).decode().replace("##", "#\\u0023") + "\n"
    )


def severity_counts(count: Mapping[Severity, int]) -> str:
    """`2 errors, 1 warning, 0 info`."""
    return ", ".join(counted(count[s], s, "info" if s is Severity.INFO else "") for s in Severity)


def described(finding: Finding) -> str:
    """The message with the object as a prefix, unless the message starts with it, and the
    cluster.
    """
    name = str(finding.object) if finding.object else ""
    prefix = f"{name}: " if name and not finding.message.startswith(name) else ""
    return f"{prefix}{finding.message}{f' (on {finding.cluster})' if finding.cluster else ''}"


def line(finding: Finding) -> str:
    """`FILE:LINE:COLUMN: SEVERITY RULE: MESSAGE`. A file whose name starts like a workflow command
    is escaped, because runners look at the start of a line.
    """
    place = f"{finding.place}: " if finding.place else ""
    start = "./" if place.lstrip().startswith("::") else ""
    return f"{start}{place}{finding.severity} {finding.rule}: {finding.message}"


def fix_line(finding: Finding) -> str:
    """A line break and `Fix: WORDS`; empty without a fix."""
    return f"\nFix: {finding.fix.words}" if finding.fix else ""


def span(finding: Finding) -> tuple[int, int, int, int]:
    """First line and column, last line and the column after the last character. All start at 1, and
    the end is after the start.
    """
    first = (max(finding.place.line, 1), max(finding.place.column, 1)) if finding.place else (1, 1)
    last = (max(finding.end.line, 1), max(finding.end.column, 1)) if finding.end else first
    return (*first, *(last if last > first else (first[0], first[1] + 1)))
