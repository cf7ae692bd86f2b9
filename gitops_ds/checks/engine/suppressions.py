"""Suppressions: advice that is not reported, with a reason and optionally an expiry date.

An annotation on the object, a comment on the line, or an exception in gitops-ds.yaml. Blocking
findings cannot be suppressed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from gitops_ds.checks.engine.rule import class_of, items, section
from gitops_ds.core import names
from gitops_ds.core.finding import Finding, Place, Severity, advice
from gitops_ds.core.objects import Key
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.yaml import parser
from gitops_ds.yaml.provenance import lookup

UNUSED: Final = advice("DS902", Severity.WARNING, "suppression has no effect")
UNANSWERED: Final = advice("DS903", Severity.WARNING, "suppression has no reason or has expired")

_SETTINGS: Final = PurePosixPath("gitops-ds.yaml")
_ENTRY: Final = re.compile(r"(DS[0-9]{3}(?:\s*,\s*DS[0-9]{3})*)\s*[=:]?\s*(.*)\Z", re.DOTALL)
_UNTIL: Final = re.compile(r"until\s*[=:]\s*(.*)\Z", re.DOTALL)
_COMMENT: Final = re.compile(r"(?:^|\s)(#\s*gitops-ds:\s*ignore\b(.*))")
_NO_VALUE: Final = re.compile(r"\s*(?:#.*)?\Z")


@dataclass(frozen=True, slots=True)
class Suppression:
    """The suppression of a rule: reason, expiry date (as written; empty: none), place, and scope.

    Without a rule the text is invalid, and `reason` is the whole text.
    """

    rule: str
    reason: str
    until: str
    place: Place
    covers: Callable[[Finding], bool] = field(compare=False)

    def fault(self, today: date) -> str:
        """The reason why the suppression is invalid; empty for a valid one. It is valid until the
        end of its last day.
        """
        if not self.rule:
            hint = "DS505=reason, or DS505=reason; until=2030-12-31"
            return f'"{self.reason}" is not a valid suppression: write {hint}'
        if not self.reason:
            return f"the suppression of {self.rule} has no reason and no effect: add a reason"
        try:
            over = bool(self.until) and date.fromisoformat(self.until) < today
        except ValueError:
            return f'"{self.until}" is not a valid date: write it as 2030-12-31'
        return (
            f"the suppression of {self.rule} expired on {self.until}: fix the finding, or set a "
            f"new date"
            if over
            else ""
        )


class Answered(msgspec.Struct, frozen=True):
    """The findings to report, and the suppressed ones with their reasons."""

    findings: tuple[Finding, ...]
    suppressed: tuple[tuple[Finding, str], ...]


def apply(
    findings: Iterable[Finding],
    answers: Iterable[Suppression],
    today: date,
    judged: Callable[[str], bool],
) -> Answered:
    """Removes suppressed findings, and adds findings about invalid and unused suppressions.

    `judged`: whether a rule has run on every object, so that a suppression of it without a match is
    unused. With a blocking finding some rules have not run: unused suppressions are not reported.
    """
    suppressions = list(answers)
    by_rule: dict[str, list[Suppression]] = {}
    for answer in suppressions:
        by_rule.setdefault(answer.rule, []).append(answer)
    reported: list[Finding] = []
    suppressed: list[tuple[Finding, str]] = []
    covering: set[Suppression] = set()
    refused: set[Suppression] = set()
    for finding in findings:
        covered = [answer for answer in by_rule.get(finding.rule, ()) if answer.covers(finding)]
        good = next((answer for answer in covered if not answer.fault(today)), None)
        if finding.refused or good is None:
            reported.append(finding)
        else:
            suppressed.append((finding, good.reason))
        (refused if finding.refused else covering).update(covered)
    all_looked = not any(finding.refused for finding in reported)
    for answer in dict.fromkeys(suppressions):
        if fault := answer.fault(today):
            reported.append(UNANSWERED.finding(fault, answer.place))
        elif answer in refused:
            message = (
                f"{answer.rule} is blocking and cannot be suppressed: fix it, and remove the "
                f"suppression"
            )
            reported.append(UNUSED.finding(message, answer.place))
        elif answer not in covering and all_looked and judged(answer.rule):
            message = f"the suppression of {answer.rule} matches no finding: remove it"
            reported.append(UNUSED.finding(message, answer.place))
    return Answered(tuple(reported), tuple(suppressed))


def of(
    bundles: Iterable[Bundle], snapshot: SourceTree, ignored: Callable[[PurePosixPath], bool]
) -> Iterator[Suppression]:
    """All suppressions in a repository. `bundles` are those of the checked clusters; `ignored`
    files are left out.
    """
    each = list(bundles)
    yield from _annotations(each, snapshot)
    for path, data in snapshot.files.items():
        # Most files have none: one search through the bytes decides.
        if b"gitops-ds:" in data and path.suffix in (".yaml", ".yml") and not ignored(path):
            yield from _comments(path.as_posix(), data.decode("utf-8", "replace"))
    yield from _exceptions(each, snapshot)


def _annotations(bundles: list[Bundle], snapshot: SourceTree) -> Iterator[Suppression]:
    where: dict[tuple[Key, str], tuple[Manifest, set[str]]] = {}
    for bundle in bundles:
        for key, manifest in bundle.manifests.items():
            text = section(section(manifest.body.get("metadata")).get("annotations")).get(
                names.IGNORE
            )
            if isinstance(text, str):
                where.setdefault((key, text), (manifest, set()))[1].add(bundle.cluster.name)
    files = lookup.sources(snapshot) if where else {}
    for (key, text), (manifest, clusters) in where.items():
        place = lookup.locate(manifest.origin, ("metadata", "annotations", names.IGNORE), files)
        yield from _read(text, place, _on_object(key, frozenset(clusters)))


def _on_object(key: Key, clusters: frozenset[str]) -> Callable[[Finding], bool]:
    return lambda finding: (
        finding.object == key and (not finding.cluster or finding.cluster in clusters)
    )


def _comments(file: str, text: str) -> Iterator[Suppression]:
    """The suppressions in comments: a comment beside a value applies to its line, a comment on a
    line of its own to the next line with a value.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line) if "gitops-ds:" in line else None
        if match:
            about = number
            if _NO_VALUE.match(line):
                about = next(
                    (
                        n
                        for n, other in enumerate(lines[number:], number + 1)
                        if not _NO_VALUE.match(other)
                    ),
                    number,
                )
            yield from _read(
                match[2], Place(file, number, match.start(1) + 1), _on_line(file, about)
            )


def _on_line(file: str, line: int) -> Callable[[Finding], bool]:
    return lambda finding: (
        finding.place is not None and (finding.place.file, finding.place.line) == (file, line)
    )


def _exceptions(bundles: list[Bundle], snapshot: SourceTree) -> Iterator[Suppression]:
    data = snapshot.files.get(_SETTINGS)
    if data is None or b"exceptions" not in data:
        return
    parsed = parser.read(str(_SETTINGS), data).documents
    exceptions = section(parsed[0].value).get("exceptions") if parsed else None
    facts = _Facts(bundles)
    for index, exception in enumerate(items(exceptions)):
        conditions = {
            key: str(value) for key, value in section(exception).items() if value is not None
        }
        place = parser.span(str(_SETTINGS), data, 0, ("exceptions", index))[0]
        yield Suppression(
            conditions.get("rule", ""),
            conditions.get("reason", ""),
            conditions.get("until", ""),
            place,
            facts.matching(conditions),
        )


class _Facts:
    """The properties of a finding that conditions of exceptions refer to: the environment of the
    cluster, the class of the object.
    """

    def __init__(self, bundles: list[Bundle]) -> None:
        self._environments = {bundle.cluster.name: bundle.cluster.environment for bundle in bundles}
        if len(bundles) == 1:  # then findings name no cluster
            self._environments[""] = bundles[0].cluster.environment
        self._bundles = bundles

    def matching(self, labels: Mapping[str, str]) -> Callable[[Finding], bool]:
        def covers(finding: Finding) -> bool:
            return all(
                fnmatchcase(self._fact(name, finding), labels[name])
                for name in _CONDITIONS
                if name in labels
            )

        return covers

    def _fact(self, name: str, finding: Finding) -> str:
        match name:
            case "object":
                return str(finding.object or "")
            case "path":
                return finding.place.file if finding.place else ""
            case "environment":
                return self._environments.get(finding.cluster, "")
            case _:
                return self._class(finding.object)

    def _class(self, key: Key | None) -> str:
        manifests = (bundle.manifests.get(key) for bundle in self._bundles) if key else ()
        return next((class_of(manifest.body) for manifest in manifests if manifest), "")


_CONDITIONS: Final = ("object", "path", "environment", "class")


def _read(text: str, place: Place, covers: Callable[[Finding], bool]) -> Iterator[Suppression]:
    """The entries of `DS505=why; until=2030-12-31; DS506=why else`, each optionally with its last
    day.
    """
    entries: list[list[Any]] = []
    for part in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        if (until := _UNTIL.match(part)) and entries:
            entries[-1][2] = until[1].strip()
        elif entry := _ENTRY.match(part):
            entries.append([re.findall(r"DS[0-9]{3}", entry[1]), entry[2].strip().strip('"'), ""])
        else:
            entries.append([[""], part, ""])
    for rules, reason, last in entries or [[[""], text.strip(), ""]]:
        yield from (Suppression(rule, reason, last, place, covers) for rule in rules)
