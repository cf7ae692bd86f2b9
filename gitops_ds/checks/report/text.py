"""Findings in the format of compilers: the place first, the source line with a caret below.
Pure.

Groups of equal findings of several clusters and objects, for the text of a report. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from gitops_ds.checks.report import findings, printable
from gitops_ds.checks.report.findings import SEVERITY_ORDER, Report, ReportedChange, severity_counts
from gitops_ds.core.finding import Finding, Severity
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.redaction.report import quotable

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_WIDEST = 200


# Without `whole`: the first errors, and either all other findings, if they are few, or one example
# of each rule.
ERRORS, OTHERS = 30, 5


def lines(report: Report, *, whole: bool = True) -> Iterator[tuple[str, str | None]]:
    """Lines with their color (None: plain), and a summary. Without `whole`, the errors are first,
    and many other findings are a summary by rule.
    """

    @lru_cache(maxsize=1)  # findings are sorted by file, and a file can be large
    def source(file: str) -> list[str]:
        data = report.files.get(file, b"")
        return data.decode("utf-8", "replace").splitlines() if quotable(data) else []

    groups = grouped(report.findings)
    several = len({finding.cluster for finding in report.findings}) > 1
    shown, left = (groups, []) if whole else _most_important(groups)
    for group in shown:
        yield from _of_group(group, report, source, several=several)
    if left:
        count = counted(len(left), "more finding")
        yield f"{count} (--all prints each, --explain RULE describes a rule):", None
    for rule in by_rule(left):
        first, more = rule[0].first, f" (and {len(rule) - 1} more)" if rule[1:] else ""
        yield f"  {findings.line(first).splitlines()[0]}{more}", _COLOURS[first.severity]
    yield from _summary(report, len(groups))


def _most_important(
    groups: Sequence[FindingGroup],
) -> tuple[list[FindingGroup], list[FindingGroup]]:
    """The findings that are printed in full, and the others."""
    errors = [group for group in groups if group.first.severity is Severity.ERROR]
    others = [group for group in groups if group.first.severity is not Severity.ERROR]
    if len(others) <= OTHERS and len(errors) <= ERRORS:
        return errors + others, []
    return errors[:ERRORS], errors[ERRORS:] + others


def _of_group(
    group: FindingGroup,
    report: Report,
    source: Callable[[str], list[str]],
    *,
    several: bool,
) -> Iterator[tuple[str, str | None]]:
    """The lines of equal findings; `several`: of several clusters."""
    finding = group.first
    first, *more = findings.line(finding).split("\n")
    yield first, _COLOURS[finding.severity]
    yield from ((f"  {'':>5} | {line}", None) for line in more)
    if finding.place and finding.place.line:
        yield from ((line, None) for line in _excerpt(finding, report, source(finding.place.file)))
    if scope := group.scope(several=several):
        yield f"  {'':>5} = {scope}", None
    if finding.other and finding.other[1]:
        yield f"  {'':>5} = also: {finding.other[1]}: {finding.other[0]}", None
    if finding.fix:
        yield f"  {'':>5} = fix: {' '.join(finding.fix.words.split())}", None


def _summary(report: Report, groups: int) -> Iterator[tuple[str, str | None]]:
    """The numbers, then notes, the changes and the drift beside them."""
    distinct = f" ({groups} distinct)" if groups < len(report.findings) else ""
    yield (
        (
            f"{counted(report.file_count, 'file')}, {counted(len(report.checked), 'object')}: "
            f"{severity_counts(report.count())}{distinct}"
        ),
        None,
    )
    if hint := _fixable(*report.fixable):
        yield hint, None
    yield from ((f"note: {note}", None) for note in report.notes)
    if report.changed is not None:
        yield from ((line, None) for line in _changes(report.changed))
    for cluster, lines in report.drift:
        yield (
            (
                f"Beside the change{f', in {cluster}' if cluster else ''}, the cluster differs "
                "from the base (cluster -> base):"
            ),
            None,
        )
        yield from ((line, None) for line in (*lines.splitlines(), ""))


def _fixable(safe: int, more: int) -> str:
    if safe and more:
        return f"{safe} can be fixed with --fix, {more} more with --fix-unsafe"
    return (
        f"{safe or more} can be fixed with {'--fix' if safe else '--fix-unsafe'}"
        if safe or more
        else ""
    )


def _changes(changed: Iterable[ReportedChange]) -> Iterator[str]:
    yield ""
    nothing = True
    for group in changed:
        nothing = False
        where = f" in {', '.join(filter(None, group.clusters))}" if any(group.clusters) else ""
        yield f"Changes{where}:"
        yield from (line for diff in group.objects for line in diff.splitlines())
        yield ""
    if nothing:
        yield "No object changes."


def as_text(report: Report) -> str:
    """The lines without colors."""
    return "".join(f"{line}\n" for line, _ in lines(report))


def _excerpt(finding: Finding, report: Report, source: list[str]) -> Iterator[str]:
    place, end = finding.place, finding.end
    if place is None or place.line > len(source) or len(source[place.line - 1]) > _WIDEST:
        return
    plain = source[place.line - 1].replace("\t", " ")
    hidden = report.hidden.in_line(finding, plain)
    if hidden is None:
        return
    line = printable.line(hidden, _WIDEST * 10)
    yield f"  {place.line:>5} | {line}"
    wide = end.column - place.column if end and end.line == place.line else 1
    if line == plain:  # hidden or escaped parts change the columns
        yield (
            f"  {'':>5} | "
            f"{' ' * (place.column - 1)}{'^' * max(1, min(wide, len(line) - place.column + 1))}"
        )


SHOWN_NAMES = 8


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings of one rule at one place with one message; they differ in cluster and object."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding that represents the group."""
        return self.findings[0]

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters, sorted."""
        return tuple(sorted({finding.cluster for finding in self.findings} - {""}))

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects, sorted."""
        return tuple(sorted({str(finding.object) for finding in self.findings if finding.object}))

    def scope(self, *, several: bool) -> str:
        """The clusters and objects of the group: `in eu-1, us-1: DaemonSet a/b, DaemonSet a/c`.
        Empty for one finding, unless the report has `several` clusters.
        """
        if len(self.findings) == 1 and not several:
            return ""
        clusters = f"in {listed(self.clusters, SHOWN_NAMES)}" if self.clusters else ""
        objects = listed(self.objects, SHOWN_NAMES) if len(self.objects) > 1 else ""
        return ": ".join(filter(None, (clusters, objects)))


def grouped(findings: Iterable[Finding]) -> list[FindingGroup]:
    """The groups in the order of their first findings."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        place, fix = finding.place, finding.fix.words if finding.fix else ""
        key = (
            finding.rule,
            finding.severity,
            finding.message,
            place,
            finding.end,
            fix,
            finding.other,
        )
        groups.setdefault(key, []).append(finding)
    return [FindingGroup(tuple(same)) for same in groups.values()]


def by_rule(groups: Iterable[FindingGroup]) -> list[list[FindingGroup]]:
    """The groups of each rule and severity, the most severe and most frequent first."""
    rules: dict[tuple[int, str], list[FindingGroup]] = {}
    for group in groups:
        rules.setdefault((SEVERITY_ORDER[group.first.severity], group.first.rule), []).append(group)
    order = sorted(rules.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    return [same for _, same in order]
