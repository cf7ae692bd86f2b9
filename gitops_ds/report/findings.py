"""What a check found, made ready for every way to tell it: in order, with fingerprints, harmless to
print, without secrets. Pure.

Findings quote what stands in a repository, and a pull request may come from anybody. So every text
is made harmless here, once, before a format sees it: control characters are written out, secrets
hidden, and nothing is longer than a page.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import orjson

from gitops_ds.model.finding import Finding, Place, Severity
from gitops_ds.model.objects import Key, ListMember, Path, show_path
from gitops_ds.redaction import report as redaction_report
from gitops_ds.redaction import texts

HOME: Final = "https://github.com/gitops-ds/gitops-ds"
# Where a finding is shown that has no file, in formats that can't do without one.
NOWHERE: Final = "gitops-ds.yaml"
LOUDNESS: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}

_LONGEST_MESSAGE = 2_000
_LONGEST_NAME = 500
# The order of objects, without asking them in pairs.
_PARTS: Final = attrgetter("cluster", "key.group", "key.kind", "key.namespace", "key.name", "file")


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """An object that was looked at, on which cluster, and the file it comes from."""

    cluster: str
    key: Key
    file: str


@dataclass(frozen=True, slots=True)
class RuleText:
    """What a rule is called, how loud it is by itself, and its page (Markdown)."""

    id: str
    summary: str
    severity: Severity
    refused: bool
    page: str = ""


@dataclass(frozen=True, slots=True)
class ReportContext:
    """What a report says of itself and of the world around it.

    `key` tells the reports of one pull request apart, `scope` the runs of code scanning: the
    clusters. `permalink` is the URL to which a file of the commit is appended, `full` says where
    the whole report is. `at` is the commit's time in ISO 8601. What is empty is not said.
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
    rules: Mapping[str, RuleText] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """What a change does, alike on some clusters: each object that changes, in words; how many
    nodes gain, lose, restart a pod.

    `time` says how long the slowest rollout takes, `cost` what all of it asks for more, where that
    is known.
    """

    clusters: tuple[str, ...]
    objects: tuple[str, ...]
    gained: int = 0
    lost: int = 0
    restarted: int = 0
    time: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A part of a file that a fix replaces: from a line and column (from 1) up to before another,
    and the text that comes there.
    """

    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Findings by severity, file, line and rule, harmless to print, each with the fingerprint in
    the same place.

    `root` is the directory of the repository that file names are relative to, empty at the top.
    `suppressed` are findings that somebody answered for, with the reason. `changed` is None where
    no base was looked at; `document` are further keys for JSON. `replacements` (in the place of
    each finding, as far as they go) are what a fix changes; `fixable` says how many findings
    `--fix` would mend, and how many more `--fix-unsafe`. `notes` say what was not looked at;
    `drift` is, by cluster, where it is not what the base says.
    """

    findings: tuple[Finding, ...]
    fingerprints: tuple[str, ...]
    files: Mapping[str, bytes]
    checked: tuple[CheckedObject, ...] = ()
    hidden: redaction_report.ReportSecrets = field(default_factory=redaction_report.ReportSecrets)
    root: str = ""
    suppressed: tuple[tuple[Finding, str], ...] = ()
    changed: tuple[ReportedChange, ...] | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    replacements: tuple[tuple[Replacement, ...], ...] = ()
    fixable: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()
    drift: tuple[tuple[str, str], ...] = ()

    def file(self, finding: Finding) -> str:
        """The finding's file, from the top of the repository, as forges want it."""
        return self.within(finding.place.file if finding.place else NOWHERE)

    def within(self, name: str) -> str:
        """A file of the report, from the top of the repository."""
        return f"{self.root}/{name}" if self.root else name

    def count(self) -> Counter[Severity]:
        """How many there are of each severity."""
        return Counter(finding.severity for finding in self.findings)


def report(
    found: Iterable[Finding],
    files: Mapping[str, bytes],
    checked: Iterable[CheckedObject] = (),
    *,
    hidden: redaction_report.ReportSecrets | None = None,
    root: str = "",
    suppressed: Iterable[tuple[Finding, str]] = (),
    replacements: Mapping[Finding, Sequence[Replacement]] | None = None,
) -> Report:
    """The same report for the same findings, in whatever order they come."""
    hidden = hidden or redaction_report.ReportSecrets()
    raw = in_order(found)
    answered = sorted(suppressed, key=lambda one: _order(one[0]))
    return Report(
        tuple(_harmless(finding, hidden) for finding in raw),
        tuple(fingerprints(raw)),
        files,
        tuple(sorted(map(_harmless_object, checked), key=_PARTS)),
        hidden,
        harmless(root),
        tuple(
            (_harmless(finding, hidden), harmless(hidden.within(reason)))
            for finding, reason in answered
        ),
        replacements=tuple(
            ()
            if hidden.at(finding)
            else _tellable((replacements or {}).get(finding, ()), files, hidden)
            for finding in raw
        ),
    )


def _tellable(
    some: Sequence[Replacement], files: Mapping[str, bytes], hidden: redaction_report.ReportSecrets
) -> tuple[Replacement, ...]:
    """The replacements of a fix; none where one of them would tell a secret: a fix in parts is
    none.
    """
    if any(
        hidden.within(one.text) != one.text
        or not redaction_report.quotable(files.get(one.file, b""))
        for one in some
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
    """The report with what the change does (None: nobody asked), what is known of nodes, and what
    differs in the clusters.
    """
    told = (
        replace(
            one,
            clusters=tuple(map(harmless, one.clusters)),
            time=harmless(one.time),
            cost=harmless(one.cost),
            objects=tuple(harmless_block(report.hidden.within(text)) for text in one.objects),
        )
        for one in changed or ()
    )
    hidden: dict[str, Any] = _within(document, report.hidden)
    differing = (
        (harmless(cluster), harmless_block(report.hidden.within("\n".join(lines))))
        for cluster, lines in drift
    )
    return replace(
        report,
        changed=None if changed is None else tuple(told),
        document=hidden,
        notes=tuple(harmless(report.hidden.within(note)) for note in notes),
        drift=tuple(differing),
    )


def _within(document: Any, hidden: redaction_report.ReportSecrets) -> Any:
    if isinstance(document, Mapping):
        return {_within(key, hidden): _within(below, hidden) for key, below in document.items()}
    if isinstance(document, list | tuple):
        return [_within(below, hidden) for below in document]
    return (
        _LONE.sub(_written_out, hidden.within(document)) if isinstance(document, str) else document
    )


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """By severity, file, line and rule, each once: in this order `fingerprints` tells equal ones
    apart.
    """
    return [next(same) for _, same in groupby(sorted(found, key=_order), key=_order)]


def _order(finding: Finding) -> tuple[Any, ...]:
    place = finding.place or Place("")
    where = (LOUDNESS[finding.severity], place.file, place.line, finding.rule, place.column)
    return (
        *where,
        finding.cluster,
        str(finding.object or ""),
        show_path(finding.path),
        finding.message,
        not finding.refused,
    )


def at_or_above(findings: Iterable[Finding], severity: Severity) -> bool:
    """Whether any finding is as loud as that."""
    return any(LOUDNESS[finding.severity] <= LOUDNESS[severity] for finding in findings)


def fingerprint(finding: Finding) -> str:
    """Names the finding across commits: rule, cluster, object and path, never the line.

    Without a path the message takes its place, but for the lines that it names.
    """
    what = str(finding.object) if finding.object else (finding.place.file if finding.place else "")
    subject = (
        "" if finding.path else _LINES.sub(r"\1", texts.shapes(" ".join(finding.message.split())))
    )
    return _digest(
        "\0".join((finding.rule, finding.cluster, what, show_path(finding.path), subject))
    )


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """The fingerprints of findings in their order; equal ones are told apart by how often they came
    before.
    """
    seen: Counter[str] = Counter()
    found = []
    for one in map(fingerprint, findings):
        found.append(_digest(f"{one}\0{seen[one]}") if seen[one] else one)
        seen[one] += 1
    return found


# "line 12", "12:5" and "column 5" move with every edit above them.
_LINES = re.compile(r"\b(lines? |columns? |ya?ml:)[\d:]+")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# Controls (an escape sequence would rewrite the terminal), line separators, what turns the
# direction of text or can't be seen (https://trojansource.codes), and what neither UTF-8 nor XML
# can hold: https://www.w3.org/TR/xml/#charsets
_HARMFUL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
# Halves of a character, which JSON can't hold.
_LONE = re.compile("[\ud800-\udfff]")
# GitHub's and Azure's runners, and TeamCity, look for `##[…]` and `##vso[…]` anywhere in what a
# step prints.
_OLD_COMMAND = re.compile(r"##(?=\w*\[)")
# And GitHub's newer ones at the start of a line, whatever spaces are before it.
_COMMAND = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def harmless(text: str, longest: int = _LONGEST_NAME) -> str:
    """One line that holds nothing that a terminal, a runner or a parser would act upon; cut with
    `…` where it is too long.
    """
    return _visible(text.replace("\n", "\\n"), longest)


def _visible(text: str, longest: int) -> str:
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isascii() and text.isprintable() and "##" not in text:  # as nearly every name is
        return text
    return _OLD_COMMAND.sub("# #", _HARMFUL.sub(_written_out, text))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found.group())
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def harmless_words(text: str) -> str:
    """A message: as `harmless`, but its own ends of lines stay."""
    lines = (line.rstrip() for line in text.replace("\r\n", "\n").replace("\t", " ").split("\n"))
    return _visible("\n".join(line for line in lines if line), _LONGEST_MESSAGE)


def harmless_block(text: str) -> str:
    """A part of a file or a diff, line by line: none of them is a command to a runner."""
    return _COMMAND.sub(
        r"\1: :", _visible(text.replace("\r\n", "\n").replace("\t", "    "), len(text) * 4)
    )


def _harmless(finding: Finding, hidden: redaction_report.ReportSecrets) -> Finding:
    fix = finding.fix and replace(
        finding.fix, words=harmless_words(hidden.within(finding.fix.words))
    )
    return replace(
        finding,
        message=harmless_words(hidden.in_message(finding)),
        place=_harmless_place(finding.place),
        end=_harmless_place(finding.end),
        object=finding.object and _harmless_key(finding.object),
        path=_harmless_path(finding.path),
        cluster=harmless(finding.cluster),
        fix=fix,
        other=finding.other
        and (_harmless_key(finding.other[0]), _harmless_place(finding.other[1])),
    )


def _harmless_place(place: Place | None) -> Place | None:
    return place and replace(
        place,
        file=harmless(place.file, 4_096),
        line=max(place.line, 0),
        column=max(place.column, 0),
    )


def _harmless_key(key: Key) -> Key:
    return Key(*map(harmless, (key.group, key.kind, key.namespace, key.name)))


def _harmless_path(path: Path) -> Path:
    return tuple(
        step
        if isinstance(step, int)
        else ListMember(harmless(step))
        if isinstance(step, ListMember)
        else harmless(step)
        for step in path
    )


def _harmless_object(checked: CheckedObject) -> CheckedObject:
    return CheckedObject(
        harmless(checked.cluster), _harmless_key(checked.key), harmless(checked.file, 4_096)
    )


def dumps(document: Any) -> str:
    """A JSON document as text; `##[…]` in it, a command to some runners, is written so that only a
    JSON reader sees it.
    """
    return (
        orjson.dumps(document, option=orjson.OPT_INDENT_2).decode().replace("##", "#\\u0023") + "\n"
    )


def told(count: Mapping[Severity, int]) -> str:
    """`2 errors, 1 warning, 0 info`."""
    return ", ".join(
        f"{count[s]} {s}{'s' if count[s] != 1 and s is not Severity.INFO else ''}" for s in Severity
    )


def with_object(finding: Finding) -> str:
    """The message after the object that it is about, unless it names it itself."""
    name = str(finding.object) if finding.object else ""
    return (
        f"{name}: {finding.message}"
        if name and not finding.message.startswith(name)
        else finding.message
    )


def span(finding: Finding) -> tuple[int, int, int, int]:
    """First line and column, last line and the column after its last character: from 1, and never
    backwards.
    """
    first = (max(finding.place.line, 1), max(finding.place.column, 1)) if finding.place else (1, 1)
    last = (max(finding.end.line, 1), max(finding.end.column, 1)) if finding.end else first
    return (*first, *(last if last > first else (first[0], first[1] + 1)))
