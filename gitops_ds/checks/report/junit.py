"""Findings as JUnit XML. Each checked object is a test case, so that CI shows which findings are
fixed. Pure.

Sources: https://docs.gitlab.com/ci/testing/unit_test_reports/ and the schema junit-10.xsd of
Jenkins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree as Xml

from gitops_ds.checks.engine import repository_rules, rule_table
from gitops_ds.checks.report.findings import SEVERITY_ORDER, Report, ReportContext, fix_line, line
from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Key
from gitops_ds.source.rules import NOT_RENDERED

LARGEST: Final = 29_000_000  # bytes; GitLab accepts 30 MB per file
# Templates that cannot be rendered and rules that failed are errors, not failures of an object.
_NOT_CHECKED: Final = frozenset(
    rule.id for rule in (NOT_RENDERED, repository_rules.SAME_TWICE, rule_table.CRASHED)
)
# The required duration of each test is 0, so that equal input yields an equal report.
_NO_TIME: Final = "0.000"

_Case = tuple[str, Key | None, str]  # cluster, object, file


@dataclass
class _Outcome:
    failures: list[Finding] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    words: list[Finding] = field(default_factory=list)
    reasons: list[tuple[Finding, str]] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """The order of importance, 0 first."""
        return 0 if self.errors or self.failures else 1 if self.words or self.reasons else 2


def as_xml(report: Report, about: ReportContext, largest: int = LARGEST) -> str:
    """The report: a suite for each cluster, with a case for each object and for each file with
    findings about the file itself.

    If the report is too large, passed cases are omitted first, then cases without failures; the
    suite states their number.
    """
    cases = _cases(report, about)
    suites: dict[str, dict[_Case, Xml.Element]] = {}
    names: Counter[tuple[str, str]] = Counter()
    for case in sorted(cases, key=_order):
        suites.setdefault(case[0], {})[case] = _case(case, cases[case], names)
    kept = _kept(suites, cases, largest)
    root = _parent("testsuites", {"name": "gitops-ds"}, (cases[case] for case in kept))
    for cluster, elements in (suites or {"": {}}).items():
        shown = {case: element for case, element in elements.items() if case in kept}
        suite = _parent("testsuite", {"name": cluster or "all"}, (cases[case] for case in shown))
        if about.at:
            suite.set("timestamp", about.at)
        suite.extend(shown.values())
        if left_out := len(elements) - len(shown):
            note = f"{left_out} more cases are omitted, the least important first"
            Xml.SubElement(suite, "system-out").text = note
        root.append(suite)
    for element in (*root, *(case for suite in root for case in suite)):
        element.tail = "\n"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _parent(tag: str, facts: Mapping[str, str], outcomes: Iterable[_Outcome]) -> Xml.Element:
    element = Xml.Element(tag, {**facts, **_counts(outcomes)})
    element.text = "\n"
    return element


def _cases(report: Report, about: ReportContext) -> Mapping[_Case, _Outcome]:
    homes = {(checked.cluster, checked.key): checked.file for checked in report.checked}
    cases: defaultdict[_Case, _Outcome] = defaultdict(_Outcome)
    for checked in report.checked:
        cases[(checked.cluster, checked.key, checked.file)] = _Outcome()

    def case(finding: Finding) -> _Outcome:
        file = finding.place.file if finding.place else ""
        home = homes.get((finding.cluster, finding.object), file) if finding.object else file
        return cases[(finding.cluster, finding.object, home)]

    for finding in report.findings:
        outcome = case(finding)
        if finding.rule in _NOT_CHECKED and SEVERITY_ORDER[finding.severity] == 0:
            outcome.errors.append(finding)
        elif SEVERITY_ORDER[finding.severity] <= SEVERITY_ORDER[about.fail_on]:
            outcome.failures.append(finding)
        else:
            outcome.words.append(finding)
    for finding, reason in report.suppressed:
        case(finding).reasons.append((finding, reason))
    return cases


def _order(case: _Case) -> tuple[str, ...]:
    cluster, key, file = case
    return (
        (cluster, key.kind, key.namespace, key.name, file, key.group)
        if key
        else (cluster, "", "", "", file, "")
    )


def _kept(
    suites: Mapping[str, Mapping[_Case, Xml.Element]], cases: Mapping[_Case, _Outcome], largest: int
) -> set[_Case]:
    """The cases within the size limit, the most important first."""
    left = largest - 1_000 - 1_000 * len(suites)
    kept: set[_Case] = set()
    every = [pair for elements in suites.values() for pair in elements.items()]
    for case, element in sorted(every, key=lambda pair: cases[pair[0]].rank):
        left -= len(Xml.tostring(element, encoding="utf-8", xml_declaration=False)) + 1
        if left < 0:
            break
        kept.add(case)
    return kept


def _case(case: _Case, outcome: _Outcome, names: Counter[tuple[str, str]]) -> Xml.Element:
    """A test case. Class and name are unique, since duplicates are dropped."""
    cluster, key, file = case
    suite = cluster or "all"
    what = (f"{key.namespace}/{key.name}" if key.namespace else key.name) if key else ""
    classname = f"{suite}.{key.kind}" if key else f"{suite}.File"
    name = f"{what} [{file}]" if what else f"[{file}]" if file else "[repository]"
    names[classname, name] += 1
    if (again := names[classname, name]) > 1:
        name += f" #{again}"
    element = Xml.Element(
        "testcase", {"classname": classname, "name": name, "file": file, "time": _NO_TIME}
    )
    if outcome.reasons and not outcome.errors and not outcome.failures:
        Xml.SubElement(element, "skipped").text = "\n".join(
            f"{finding.rule}: {reason}" for finding, reason in outcome.reasons
        )
    for tag, findings in (("error", outcome.errors), ("failure", outcome.failures)):
        for finding in findings:
            message = finding.message.partition("\n")[0]
            Xml.SubElement(element, tag, {"message": message, "type": finding.rule}).text = _words(
                finding
            )
    if outcome.words:
        Xml.SubElement(element, "system-out").text = "\n".join(map(_words, outcome.words))
    return element


def _words(finding: Finding) -> str:
    """The full text. GitLab shows the content of an element, but not its attributes."""
    return line(finding) + fix_line(finding)


def _counts(cases: Iterable[_Outcome]) -> dict[str, str]:
    """The attributes with the counts. A case counts once, regardless of its number of findings;
    otherwise `failures` could exceed `tests`.
    """
    count = Counter(
        "errors"
        if outcome.errors
        else "failures"
        if outcome.failures
        else "skipped"
        if outcome.reasons
        else "passed"
        for outcome in cases
    )
    numbers = {name: str(count[name]) for name in ("failures", "errors", "skipped")}
    return {"tests": str(count.total()), **numbers, "time": _NO_TIME}
