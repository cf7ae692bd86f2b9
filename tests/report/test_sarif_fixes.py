"""The fixes in SARIF are what an editor can apply: the finding is gone, and nothing is reported
that must not be.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from gitops_ds.checks.report import sarif
from gitops_ds.checks.report.findings import Replacement
from gitops_ds.core.finding import Fix, Mend
from tests.cli.test_fix import AGENT, LIMIT, check, holding
from tests.report import made
from tests.report.test_forges import VALIDATOR

SECRET = (
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: logging}\nstringData: "
    "{token: abcdefgh}\n"
)


def results(fleet: Path) -> list[dict[str, Any]]:
    log = json.loads(check(fleet, "-o", "sarif").stdout)
    assert [error.message for error in VALIDATOR.iter_errors(log)] == []
    (run,) = log["runs"]
    return list(run["results"])


def applied(text: str, changes: list[dict[str, Any]]) -> str:
    """As an editor does: the parts of a file replaced, from the last."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for one in reversed(changes):
        region = one["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + one["insertedContent"]["text"] + text[end:]
    return text


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text",
    [AGENT, AGENT.rstrip("\n"), AGENT + "---\n" + AGENT.replace("name: agent", "name: other")],
)
def test_each_fix_mends_its_finding(tmp_path: Path, text: str) -> None:
    fleet = holding(tmp_path, {"sub/agent.yaml": text})
    before = results(fleet)
    with_fixes = [one for one in before if "fixes" in one]
    assert {one["ruleId"] for one in with_fixes} >= {
        "DS013",
        "DS015",
        "DS211",
        "DS305",
        "DS209",
        "DS312",
    }
    for one in with_fixes:
        (fix,) = one["fixes"]
        (change,) = fix["artifactChanges"]
        assert unquote(change["artifactLocation"]["uri"]) == "sub/agent.yaml"
        assert one["message"]["text"].endswith(f"Fix: {fix['description']['text']}")
        (fleet / "sub/agent.yaml").write_text(applied(text, change["replacements"]))
        after = [reported for reported in results(fleet) if reported["ruleId"] == one["ruleId"]]
        assert (
            len(after)
            == len([reported for reported in before if reported["ruleId"] == one["ruleId"]]) - 1
        )


def test_only_what_changes_is_replaced(tmp_path: Path) -> None:
    (found,) = [
        one for one in results(holding(tmp_path, {"agent.yaml": AGENT})) if one["ruleId"] == "DS211"
    ]
    (change,) = found["fixes"][0]["artifactChanges"]
    number = AGENT.splitlines(keepends=True).index(LIMIT) + 1
    region = {"startLine": number, "startColumn": 1, "endLine": number + 1, "endColumn": 1}
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": ""}}]


def test_nothing_of_a_file_with_a_secret_is_quoted(tmp_path: Path) -> None:
    text = AGENT.replace(LIMIT, "  revisionHistoryLimit: 1\n") + SECRET
    assert not [one for one in results(holding(tmp_path, {"agent.yaml": text})) if "fixes" in one]


def test_a_replacement_that_would_show_a_secret_is_omitted() -> None:
    fix = Fix("set it", (Mend(("a",), 1),))
    one = made.finding(fix=fix)
    plain = Replacement(made.FILE, (3, 1), (4, 1), "level: info\n")
    secret = Replacement(
        made.FILE, (3, 1), (4, 1), "token: ghp_0123456789abcdefghijklmnopqrstuvwxyz\n"
    )
    for replacements, count in (((plain,), 1), ((plain, secret), 0)):
        report = made.report(one, replacements={one: replacements}, root="fleet")
        (result,) = json.loads(sarif.as_json(report, made.about()))["runs"][0]["results"]
        assert len(result.get("fixes", [])) == count
        assert "ghp_" not in json.dumps(result)
