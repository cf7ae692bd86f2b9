"""Every fix that a rule proposes, on the wrong examples of its page: it holds, it is enough, and it
does nothing else.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import pytest

from gitops_ds.checks.engine import catalogue, rule_table
from gitops_ds.cli.check import autofix, run
from gitops_ds.cli.check.model import CheckInput, CheckResult
from gitops_ds.core.finding import Finding
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.yaml import parser, writer
from tests.checks import test_node_pages
from tests.checks.test_rule_pages import manifest

FILE = PurePosixPath("agent.yaml")
TOLD_BY_SCHEMAS = ("DS003", "DS004", "DS008")
PAGES = {
    rule: page
    for rule in sorted({*TOLD_BY_SCHEMAS, *(rule.id for rule in rule_table.RULES)})
    if (page := catalogue.page_of(rule))
}
EXAMPLES = [(rule, number) for rule, page in PAGES.items() for number in range(len(page.wrong))]


def commented(body: dict[str, Any]) -> str:
    """The manifest with a comment above every line, and one behind it."""
    lines = writer.dump(body).splitlines()
    made = "".join(
        f"{' ' * (len(line) - len(line.lstrip()))}# above {number}\n{line}   # beside {number}\n"
        for number, line in enumerate(lines)
    )
    (document,) = parser.read("made", made.encode()).documents
    return made if document.value == body else writer.dump(body)


def looked_at(rule: str, text: str) -> CheckResult:
    settings = f"version: v1\nmanifests: [agent.yaml]\nrules: {{{rule}: true}}\n"
    files = {PurePosixPath("gitops-ds.yaml"): settings.encode(), FILE: text.encode()}
    return look(SourceTree(None, files))


def look(snapshot: SourceTree) -> CheckResult:
    return run.of(CheckInput(snapshot, None, {}, namespace="logging"))


def fixable(findings: tuple[Finding, ...], *, unsafe: bool) -> set[Finding]:
    return {finding for finding in findings if finding.fix and (unsafe or finding.fix.safe)}


@pytest.mark.parametrize("unsafe", [False, True], ids=["fix", "fix-unsafe"])
@pytest.mark.parametrize(("rule", "number"), EXAMPLES)
def test_a_fix_holds(rule: str, number: int, unsafe: bool) -> None:
    before = looked_at(rule, commented(manifest(PAGES[rule].wrong[number])))
    fixed = autofix.fix(before, look, unsafe=unsafe)
    assert not [(finding.rule, finding.path, why) for finding, why in fixed.left], (
        "each of these can be fixed"
    )
    assert not fixable(fixed.checked.findings, unsafe=unsafe)
    assert bool(fixed.files) is bool(fixed.done) is bool(fixable(before.findings, unsafe=unsafe))
    refused = {finding.rule for finding in before.findings if finding.refused}
    assert {finding.rule for finding in fixed.checked.findings if finding.refused} <= refused
    again = autofix.fix(fixed.checked, look, unsafe=unsafe)
    assert (again.files, again.done) == ({}, ())
    for file, data in fixed.files.items():
        assert_comments_stay(before.snapshot.files[file].decode(), data.decode())


WIDE_PAGES = {
    rule: page
    for rule in test_node_pages.RULES
    if rule not in test_node_pages.ELSEWHERE and (page := catalogue.page_of(rule))
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rule", "number"),
    [(rule, n) for rule, page in WIDE_PAGES.items() for n in range(len(page.wrong))],
)
def test_a_fix_of_a_rule_over_a_fleet_or_a_change_holds(rule: str, number: int) -> None:
    sides = test_node_pages.sides_of(rule, WIDE_PAGES[rule].wrong[number])
    again = partial(_look_again, sides)
    before = again(sides.head)
    fixed = autofix.fix(before, again, unsafe=True)
    mended = {one.on_cluster("") for one in before.findings if one.fix and one.rule == rule}
    assert not [(one.path, why) for one, why in fixed.left if one.rule == rule]
    assert mended <= {one.on_cluster("") for one in fixed.done}
    assert not mended or not [one for one in fixed.checked.findings if one.rule == rule], (
        "it is enough"
    )


def _look_again(sides: CheckInput, snapshot: SourceTree) -> CheckResult:
    return run.of(replace(sides, head=snapshot))


def assert_comments_stay(before: str, after: str) -> None:
    """A comment on a line of its own only goes with the line below it."""
    lines, left = before.splitlines(), Counter(after.splitlines())
    for comment, below in pairwise(lines):
        if comment.lstrip().startswith("#") and not left[comment]:
            assert not left[below], f"{comment} is gone"
