"""Anything that a finding names can be looked up: a row in the list of rules, a page, an answer of
`check --explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from inspect import unwrap
from itertools import groupby
from pathlib import Path
from typing import Any, get_type_hints

import click
import orjson
import pytest
from click.testing import CliRunner

from gitops_ds import cli
from gitops_ds.checks.change import object_changes, promotion
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import catalogue, rule_table
from gitops_ds.checks.engine.contexts import ChangeSides, ClusterContext, ClusterStep
from gitops_ds.checks.engine.rule import Rule
from gitops_ds.core.objects import Body
from gitops_ds.deploy.pipeline import prepare
from tests.checks.test_rule_pages import OF_THE_CHECK
from tests.plan import world

SOURCES = Path(catalogue.__file__).parents[1]
RETIRED = {"DS807"}  # a number is not used again
PARAMETERS = orjson.dumps(
    {"type": "object", "properties": {"version": {"type": "string"}, "more": {"type": "string"}}}
)


def literals() -> Iterator[str]:
    """The IDs of rules in the code: what a finding can carry."""
    for file in SOURCES.parent.rglob("*.py"):
        yield from re.findall(r'"((?:DS|SRC)\d{3})"', file.read_text(encoding="utf-8"))


def explained(rule: str) -> str:
    done = CliRunner().invoke(cli.cli, ["check", "--explain", rule], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_the_list_holds_every_rule_that_a_finding_can_name_and_no_other() -> None:
    listed = [*(row.id for row in catalogue.rows()), *catalogue.of_files()]
    assert sorted(literals()) == sorted(listed), (
        "the ID of a case is in its declaration alone, and its module in gitops_ds/checks/engine/"
    )


def test_the_numbers_of_a_family_have_no_gap() -> None:
    used = {row.id for row in catalogue.rows()} | RETIRED
    changelog = (SOURCES.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bDS\d{3}\b", changelog)) <= used, "add a removed rule to RETIRED"
    for family, rules in groupby(sorted(used), key=lambda rule: rule[:3]):
        numbers = list(rules)
        assert numbers == [f"{family}{number:02}" for number in range(1, len(numbers) + 1)], (
            "a new rule has the next ID of its family"
        )


@pytest.mark.parametrize(
    ("context", "rules"),
    [
        (Body, rule_table.RULES),
        (ClusterContext, cluster_rules.RULES),
        (ChangeSides, object_changes.RULES),
        (Iterable[ClusterStep], promotion.RULES),
    ],
)
def test_the_rules_of_a_table_take_its_context(context: Any, rules: Iterable[Rule[Any]]) -> None:
    first = {rule.id: next(iter(get_type_hints(unwrap(rule.check)).values())) for rule in rules}
    assert first == dict.fromkeys(first, context)


@pytest.mark.parametrize("rule", sorted({row.id for row in catalogue.rows()}))
def test_a_rule_is_explained_under_the_summary_of_its_row_where_it_has_one(rule: str) -> None:
    title = explained(rule.lower()).splitlines()[0]
    assert title.startswith(f"# {rule}: ")
    summaries = [row.summary for row in catalogue.rows() if row.id == rule]
    assert len(summaries) > 1 or title == f"# {rule}: {summaries[0]}"
    page = catalogue.page_of(rule)
    assert page is not None
    if rule not in {row.id for row in OF_THE_CHECK}:
        assert page.sources
        assert page.wrong
        assert len(page.right) >= 2


def test_no_page_describes_a_removed_rule() -> None:
    there = {file.stem for file in (SOURCES / "pages").iterdir()}
    assert there == {row.id for row in catalogue.rows()}, "gitops_ds/checks/pages/ has them"


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
