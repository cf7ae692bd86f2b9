"""A finding about two objects leads to both: in text, in JSON and in SARIF."""

from __future__ import annotations

import json
from pathlib import Path

from gitops_ds.checks.report import sarif, text
from gitops_ds.core.finding import Place
from tests import schemas
from tests.cli.test_fix import AGENT, check, holding
from tests.report import made
from tests.report.test_forges import VALIDATOR

OTHER = AGENT.replace("  name: agent\n  namespace", "  name: other\n  namespace")


def output(directory: Path, *options: str) -> str:
    """The output for two agents with one selector."""
    fleet = holding(directory, {"agent.yaml": AGENT, "sub/other.yaml": OTHER})
    return check(fleet, *options).stdout


def test_text_names_the_line_of_the_other_object(tmp_path: Path) -> None:
    lines = output(tmp_path, "--all").splitlines()
    index = next(number for number, line in enumerate(lines) if "DS104" in line)
    assert lines[index].startswith("agent.yaml:12:")
    assert lines[index + 3] == f"  {'':>5} = also: sub/other.yaml:5:9: DaemonSet logging/other"


def test_json_has_the_other_object_and_its_place(tmp_path: Path) -> None:
    document = json.loads(output(tmp_path, "-o", "json"))
    schemas.check(document, "check-report")
    others = {
        one["object"]["name"]: one["other"]
        for one in document["findings"]
        if one["rule"] == "DS104"
    }
    key = {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "logging", "name": "other"}
    place = {"file": "sub/other.yaml", "line": 5, "column": 9}
    assert others["agent"] == {"object": key, **place}
    assert others["other"]["file"] == "agent.yaml"
    assert [one for one in document["findings"] if one["rule"] != "DS104" and "other" in one] == []


def test_sarif_has_it_as_a_related_location(tmp_path: Path) -> None:
    log = json.loads(output(tmp_path, "-o", "sarif"))
    assert [error.message for error in VALIDATOR.iter_errors(log)] == []
    found = [
        one["relatedLocations"] for one in log["runs"][0]["results"] if one["ruleId"] == "DS104"
    ]
    (first,), (second,) = found
    assert first["physicalLocation"] == {
        "artifactLocation": {"uri": "sub/other.yaml"},
        "region": {"startLine": 5, "startColumn": 9},
    }
    assert first["message"] == {"text": "DaemonSet logging/other"}
    assert second["physicalLocation"]["artifactLocation"] == {"uri": "agent.yaml"}


def test_an_object_of_the_base_alone_has_no_place(tmp_path: Path) -> None:
    """DS701: the old name is only in the base."""
    fleet = holding(tmp_path, {"agent.yaml": AGENT})
    (fleet / "agent.yaml").write_text(OTHER)
    document = json.loads(check(fleet, "--base", "HEAD", "-o", "json").stdout)
    schemas.check(document, "check-report")
    (renamed,) = [one for one in document["findings"] if one["rule"] == "DS701"]
    assert renamed["other"] == {"object": {**renamed["object"], "name": "agent"}}


def test_the_other_object_is_escaped_like_the_rest() -> None:
    evil = made.finding(other=(made.AGENT, Place("\n::error::x", 1, 1)))
    assert "\n::error" not in text.as_text(made.report(evil))
    (result,) = json.loads(sarif.as_json(made.report(evil), made.about()))["runs"][0]["results"]
    location = result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == "%5Cn%3A%3Aerror%3A%3Ax"
