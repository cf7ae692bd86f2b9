"""JUnit XML: well-formed for any content, every object a case, within what GitLab and Jenkins
read.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

import pytest

from gitops_ds.checks.report import junit
from gitops_ds.checks.report.findings import CheckedObject, Report
from gitops_ds.core.finding import Fix, Place, Severity
from gitops_ds.core.objects import Key
from tests.report import made
from tests.report.made import finding

# What Jenkins' junit-10.xsd allows where.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase", "system-out"},
    "testcase": {"skipped", "error", "failure", "system-out"},
}
NUMBERS = ("tests", "failures", "errors", "skipped")
ATTRIBUTES = {
    "testsuites": {"name", "time", *NUMBERS},
    "testsuite": {"name", "time", "timestamp", *NUMBERS},
    "testcase": {"classname", "name", "file", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": set(),
    "system-out": set(),
}


def read(report: Report, **about: object) -> Xml.Element:
    return Xml.fromstring(junit.as_xml(report, made.about(**about)))


def cases(report: Report, **about: object) -> list[Xml.Element]:
    return list(read(report, **about).iter("testcase"))


@made.some_reports
def test_every_report_is_xml_as_its_readers_want_it(report: Report) -> None:
    root = read(report, at="2026-01-31T12:00:00")
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert re.fullmatch(r"\d+\.\d+", element.get("time", "0.0"))
    for suite in (root, *root):
        held = list(suite.iter("testcase"))
        tags = [
            next((tag for tag in ("error", "failure", "skipped") if case.find(tag) is not None), "")
            for case in held
        ]
        assert [suite.get(name) for name in NUMBERS] == [
            str(len(held)),
            *(str(tags.count(tag)) for tag in ("failure", "error", "skipped")),
        ]
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    failed = [one.get("type") for tag in ("failure", "error") for one in root.iter(tag)]
    assert sorted(filter(None, failed)) == sorted(
        one.rule for one in report.findings if one.severity is Severity.ERROR
    )


def test_an_object_that_passes_is_a_case() -> None:
    (case,) = cases(made.report())
    assert (case.get("classname"), case.get("name")) == (
        "all.DaemonSet",
        f"logging/agent [{made.FILE}]",
    )
    assert case.get("file") == made.FILE
    assert len(case) == 0


def test_the_content_is_complete_because_gitlab_reads_no_attribute() -> None:
    (case,) = cases(made.report(finding(message="two budgets", fix=Fix("take 0", ()))))
    (failure,) = case
    assert failure.tag == "failure"
    assert failure.get("type") == "DS202"
    assert failure.text == f"{made.FILE}:3:5: error DS202: two budgets\nFix: take 0"


@pytest.mark.parametrize(
    ("severity", "fail_on", "tag"),
    [
        (Severity.ERROR, Severity.ERROR, "failure"),
        (Severity.WARNING, Severity.ERROR, "system-out"),
        (Severity.WARNING, Severity.WARNING, "failure"),
        (Severity.INFO, Severity.WARNING, "system-out"),
        (Severity.INFO, Severity.INFO, "failure"),
    ],
)
def test_findings_at_the_fail_on_level_are_failures_and_the_rest_is_printed(
    severity: Severity, fail_on: Severity, tag: str
) -> None:
    (case,) = cases(made.report(finding(severity=severity)), fail_on=fail_on)
    assert [child.tag for child in case] == [tag]


@pytest.mark.parametrize("rule", ["DS801", "DS904"])
def test_an_unchecked_object_is_an_error(rule: str) -> None:
    (case,) = cases(made.report(finding(rule, object=None), checked=[]))
    assert [child.tag for child in case] == ["error"]
    assert case.get("name") == f"[{made.FILE}]"


def test_a_suppressed_finding_is_skipped_with_the_reason() -> None:
    (case,) = cases(made.report(suppressed=[(finding(), "until the new nodes come")]))
    assert [(child.tag, child.text) for child in case] == [
        ("skipped", "DS202: until the new nodes come")
    ]


def test_a_finding_in_a_value_file_belongs_to_its_object() -> None:
    (case,) = cases(made.report(finding(place=Place("environments/test.yaml", 3, 1))))
    assert case.get("file") == made.FILE
    assert case.find("failure") is not None


def test_each_cluster_is_a_suite() -> None:
    checked = [CheckedObject(cluster, made.AGENT, made.FILE) for cluster in ("west", "east")]
    root = read(made.report(finding(cluster="east"), checked=checked))
    assert [(suite.get("name"), suite.get("failures")) for suite in root] == [
        ("east", "1"),
        ("west", "0"),
    ]


def test_passed_cases_are_omitted_first() -> None:
    keys = [Key("apps", "DaemonSet", "logging", f"agent-{at:04}") for at in range(200)]
    reported = [finding(object=keys[150]), finding(object=keys[160], severity=Severity.WARNING)]
    text = junit.as_xml(
        made.report(*reported, checked=[CheckedObject("", key, made.FILE) for key in keys]),
        made.about(),
        largest=12_000,
    )
    assert len(text.encode()) <= 12_000
    root = Xml.fromstring(text)
    names = [case.get("name", "") for case in root.iter("testcase")]
    assert any("agent-0150" in name for name in names)
    assert any("agent-0160" in name for name in names)
    assert 10 < len(names) < 200
    assert (
        root[0].findtext("system-out")
        == f"{200 - len(names)} more cases are omitted, the least important first"
    )
