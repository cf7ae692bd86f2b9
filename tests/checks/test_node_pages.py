"""The pages of rules that look at nodes, at a change or at a whole repository: their examples as
repositories, checked for real.

An example is a list of documents. `# base` and `# head` begin the sides of a change, `# nodes` what
both have, `# live` what the cluster runs, `# once` and `# again` what two renderings gave; without
any, all of it is the head. A document that begins with `# a/path` is that file; a Node is one of
the inventory; another one with a kind is a manifest, and one without is a part of GOOD.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from gitops_ds.checks.change import object_changes, promotion
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import catalogue, rule_table
from gitops_ds.cli.check import run
from gitops_ds.cli.check.model import CheckInput
from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core.finding import Finding, RuleDefinition
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Body
from gitops_ds.core.sources.source_tree import SourceTree
from tests.checks.test_rule_pages import GOOD, OF_FILES, OF_THE_CHECK, over, parsed
from tests.plan import world

SECTIONS = ("base", "head", "nodes", "live", "once", "again")
OVER_OBJECTS: tuple[RuleDefinition, ...] = (
    *cluster_rules.RULES,
    *object_changes.RULES,
    *promotion.RULES,
)
NARROW = OF_FILES.union(rule.id for rule in (*rule_table.RULES, *OF_THE_CHECK))
RULES = sorted({rule.id for rule in OVER_OBJECTS} | {rule.id for rule in catalogue.rows()} - NARROW)
# Only the form of their pages is tested: this frame lacks the objects that pods reference.
ELSEWHERE = frozenset(("DS416", "DS417", "DS516"))


@dataclass
class Example:
    """What an example holds: files by section, and objects of the cluster."""

    files: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {name: {} for name in ("", *SECTIONS)}
    )
    cluster: list[Body] = field(default_factory=list)

    def side(self, *names: str) -> dict[str, Any]:
        return {
            path: content
            for name in ("", "nodes", *names)
            for path, content in self.files[name].items()
        }


def read(text: str) -> Example:
    example, section = Example(), ""
    for number, document in enumerate(text.split("---\n")):
        path = ""
        for line in document.splitlines():
            if not line.startswith("# "):
                break
            section, path = (line[2:], path) if line[2:] in SECTIONS else (section, line[2:])
        value = (
            {} if path and not path.endswith(("daemonset.yaml", "agent.yaml")) else parsed(document)
        )
        if not value:
            example.files[section][path] = document
        elif value.get("kind") == "Node":
            example.cluster.append(value)
        else:
            body = value if "kind" in value else over(parsed(GOOD), value)
            if section == "live":
                example.cluster.append(body)
            else:
                example.files[section][path or f"{number}.json"] = body
    return example


def snapshot(files: dict[str, Any], rule: str) -> SourceTree:
    own = parsed(files.get("gitops-ds.yaml", "{}"))
    patterns = {
        "/*.json": r"[^/]+\.json",
        "/agent.yaml": r"agent\.yaml",
        "/manifests": "manifests/.*",
    }
    settings = {
        **own,
        "version": "v1",
        "manifests": [
            pattern
            for pattern, path in patterns.items()
            if any(re.fullmatch(path, file) for file in files)
        ],
        "rules": {rule: True},
    }
    return world.snapshot({**files, "gitops-ds.yaml": orjson.dumps(settings)})


def sides_of(rule: str, text: str) -> CheckInput:
    """What an example means, as a check gets it."""
    example = read(text)
    live = cluster_snapshot.assemble(example.cluster) if example.cluster else Live()
    two_sides = bool(example.files["base"])
    return CheckInput(
        snapshot(example.side("head", "once"), rule),
        snapshot(example.side("base"), rule) if two_sides else None,
        {"": live},
        snapshot(example.side("again"), rule) if example.files["again"] else None,
    )


def found(rule: str, text: str) -> list[Finding]:
    reported = run.of(sides_of(rule, text)).findings
    assert {finding.rule for finding in reported if finding.refused} <= {rule}, reported
    return [finding for finding in reported if finding.rule == rule]


@pytest.mark.sampled
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ELSEWHERE])
def test_wrong_examples_of_a_page_have_findings_and_right_ones_have_none(rule: str) -> None:
    page = catalogue.page_of(rule)
    assert page is not None
    for example in page.wrong:
        assert found(rule, example), f"not found in:\n{example}"
    for example in page.right:
        assert not found(rule, example), f"found in:\n{example}"
