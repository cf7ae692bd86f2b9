"""Anything that a finding names can be looked up: a row in the list of rules, a page, an answer of
`check --explain`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner

from gitops_ds import cli
from gitops_ds.checks.engine import catalogue
from gitops_ds.deploy.pipeline import prepare
from tests.plan import world

SOURCES = Path(catalogue.__file__).parents[1]
RETIRED = {"DS807"}  # a number is not used again
OF_THE_CHECK = ("DS902", "DS903", "DS904")  # about suppressions and rules, without examples
FAMILIES = {0: 18, 100: 8, 200: 12, 300: 25, 400: 21, 500: 16, 600: 9, 700: 10, 800: 8, 900: 4}
PARAMETERS = orjson.dumps(
    {"type": "object", "properties": {"version": {"type": "string"}, "more": {"type": "string"}}}
)


def named(pattern: str) -> set[str]:
    """The literals of this form anywhere in the sources: what a finding can carry."""
    return {
        name
        for file in SOURCES.rglob("*.py")
        for name in re.findall(f'"({pattern})"', file.read_text(encoding="utf-8"))
    }


def explained(rule: str) -> str:
    done = CliRunner().invoke(cli.cli, ["check", "--explain", rule], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_the_list_holds_every_rule_that_a_finding_can_name_and_no_other() -> None:
    listed = {row.id for row in catalogue.rows()}
    numbered = {
        f"DS{family + number:03}"
        for family, count in FAMILIES.items()
        for number in range(1, count + 1)
    }
    assert listed == numbered - RETIRED, "raise the number of the family in FAMILIES"
    assert named(r"DS\d{3}") == listed
    assert named(r"SRC\d{3}") == set(catalogue.OF_FILES)


@pytest.mark.parametrize("rule", sorted({row.id for row in catalogue.rows()}))
def test_a_rule_is_explained_under_the_summary_of_its_row_where_it_has_one(rule: str) -> None:
    title = explained(rule.lower()).splitlines()[0]
    assert title.startswith(f"# {rule}: ")
    summaries = [row.summary for row in catalogue.rows() if row.id == rule]
    assert len(summaries) > 1 or title == f"# {rule}: {summaries[0]}"
    page = catalogue.page_of(rule)
    assert page is not None
    if rule not in OF_THE_CHECK:
        assert page.sources
        assert page.wrong
        assert len(page.right) >= 2


def test_no_page_describes_a_removed_rule() -> None:
    there = {file.stem for file in (SOURCES / "pages").iterdir()}
    assert there == {row.id for row in catalogue.rows()}


def test_findings_of_reading_files_are_explained_in_a_sentence() -> None:
    assert (
        explained("src001")
        == "SRC001: a symbolic link is not followed: replace it by the file (docs/rules.md, "
        "Reading files)\n"
    )
    with pytest.raises(click.UsageError, match="no such rule"):
        explained("SRC999")


def severities(files: dict[str, Any], **switches: bool) -> list[tuple[str, str]]:
    settings = {"version": "v1", "name": "agents", "rules": switches}
    prepared = prepare.prepare(
        world.snapshot({**files, "gitops-ds.yaml": orjson.dumps(settings)}), cluster="one"
    ).findings
    return [
        (one.rule, one.severity)
        for one in prepared
        if one.rule.startswith("DS80") or one.rule == "DS003"
    ]


def test_advice_of_rendering_can_be_switched_off_and_refusals_can_not() -> None:
    files = {
        "clusters/one.yaml": b"{}",
        "agents/a/params.schema.json": PARAMETERS,
        "agents/a/values/one.yaml": b"{version: 1.2.3}",
    }
    files["agents/a/daemonset.json"] = orjson.dumps(
        world.daemonset("a", "registry.example.com/a:${verison}")
    )
    assert sorted(severities(files)) == [("DS802", "error"), ("DS804", "info"), ("DS804", "info")]
    assert severities(files, DS804=False, DS802=False) == [("DS802", "error")]


def test_every_rule_of_the_list_is_one_that_can_be_named_in_the_settings() -> None:
    files = {
        "clusters/one.yaml": b"{}",
        "agents/a/daemonset.json": orjson.dumps(world.daemonset("a")),
    }
    assert severities(files, **{row.id: False for row in catalogue.rows()}) == []
    assert severities(files, DS899=False) == [("DS003", "warning")]


def test_a_repository_with_nothing_for_a_cluster_is_warned() -> None:
    assert severities({"clusters/one.yaml": b"{}"}) == [("DS804", "warning")]
