"""Findings as JUnit XML. Each checked object is a test case, so that CI shows which findings are
fixed. Pure.

Sources: https://docs.gitlab.com/ci/testing/unit_test_reports/ and the schema junit-10.xsd of
Jenkins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree as Xml

from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import Key
from gitops_ds.report.findings import SEVERITY_ORDER, Report, ReportContext

LARGEST: Final = 29_000_000  # bytes; GitLab accepts 30 MB per file
# Templates that cannot be rendered and rules that failed are errors, not failures of an object.
_NOT_CHECKED: Final = frozenset({"DS801", "DS805", "DS904"})
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
    suites: dict[str, dict[_Case, str]] = {}
    names: Counter[tuple[str, str]] = Counter()
    for case in sorted(cases, key=_order):
        suites.setdefault(case[0], {})[case] = _case(case, cases[case], names)
    kept = _kept(suites, cases, largest)
    shown = {
        cluster: [case for case in held if case in kept] for cluster, held in suites.items()
    } or {"": []}
    texts = [
        _suite(
            cluster,
            {case: cases[case] for case in held},
            [suites[cluster][case] for case in held],
            about,
            left_out,
        )
        for cluster, held in shown.items()
        for left_out in [len(suites.get(cluster, ())) - len(held)]
    ]
    counts = _counts(cases[case] for held in shown.values() for case in held)
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            _opening("testsuites", {"name": "gitops-ds", **counts}),
            *texts,
            "</testsuites>\n",
        ]
    )


def _cases(report: Report, about: ReportContext) -> Mapping[_Case, _Outcome]:
    homes = {(one.cluster, one.key): one.file for one in report.checked}
    cases: defaultdict[_Case, _Outcome] = defaultdict(_Outcome)
    for one in report.checked:
        cases[(one.cluster, one.key, one.file)] = _Outcome()

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
    suites: Mapping[str, Mapping[_Case, str]], cases: Mapping[_Case, _Outcome], largest: int
) -> set[_Case]:
    """The cases within the size limit, the most important first."""
    left = largest - 1_000 - 1_000 * len(suites)
    kept: set[_Case] = set()
    every = [(case, text) for held in suites.values() for case, text in held.items()]
    for case, text in sorted(every, key=lambda one: cases[one[0]].rank):
        left -= len(text.encode()) + 1
        if left < 0:
            break
        kept.add(case)
    return kept


def _case(case: _Case, outcome: _Outcome, names: Counter[tuple[str, str]]) -> str:
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
            f"{one.rule}: {reason}" for one, reason in outcome.reasons
        )
    for tag, findings in (("error", outcome.errors), ("failure", outcome.failures)):
        for finding in findings:
            message = finding.message.partition("\n")[0]
            Xml.SubElement(element, tag, {"message": message, "type": finding.rule}).text = _words(
                finding
            )
    if outcome.words:
        Xml.SubElement(element, "system-out").text = "\n".join(map(_words, outcome.words))
    return Xml.tostring(element, encoding="unicode")


def _words(finding: Finding) -> str:
    """The full text. GitLab shows the content of an element, but not its attributes."""
    place = f"{finding.place}: " if finding.place else ""
    fix = f"\nFix: {finding.fix.words}" if finding.fix else ""
    return f"{place}{finding.severity} {finding.rule}: {finding.message}{fix}"


def _suite(
    cluster: str,
    cases: Mapping[_Case, _Outcome],
    texts: Sequence[str],
    about: ReportContext,
    left_out: int,
) -> str:
    facts = {"name": cluster or "all", **_counts(cases.values())}
    if about.at:
        facts["timestamp"] = about.at
    note = f"<system-out>{left_out} more cases are omitted, the least important first</system-out>"
    return "\n".join(
        (_opening("testsuite", facts), *texts, *([note] if left_out else []), "</testsuite>")
    )


def _counts(cases: Iterable[_Outcome]) -> dict[str, str]:
    """The attributes with the counts. A case counts once, regardless of its number of findings;
    otherwise `failures` could exceed `tests`.
    """
    count = Counter(
        "errors"
        if one.errors
        else "failures"
        if one.failures
        else "skipped"
        if one.reasons
        else "passed"
        for one in cases
    )
    numbers = {name: str(count[name]) for name in ("failures", "errors", "skipped")}
    return {"tests": str(count.total()), **numbers, "time": _NO_TIME}


def _opening(tag: str, facts: Mapping[str, str]) -> str:
    return Xml.tostring(Xml.Element(tag, dict(facts)), encoding="unicode").removesuffix(" />") + ">"
