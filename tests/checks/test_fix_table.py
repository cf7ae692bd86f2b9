"""Which rules bring which fixes, on the examples of their pages; and why one that could be wished
for is not there.
"""

from __future__ import annotations

from typing import Final

import orjson
import pytest

from gitops_ds.checks.engine import catalogue, rule_table
from gitops_ds.core.finding import Finding
from tests.checks import test_node_pages
from tests.checks.test_rule_pages import OF_FILES, manifest
from tests.cli.test_fix_pages import looked_at

# What a rule should bring where one example or another allows it. Safe: nothing else changes its
# meaning.
SHOULD: Final = {
    "safe": """
        DS003 DS004 DS006 DS007 DS008 DS013 DS015 DS018 DS202 DS211 DS305 DS308 DS315 DS409 DS415
        DS418 DS419 DS515
    """,
    "proposed": """
        DS003 DS007 DS010 DS101 DS102 DS103 DS105 DS201 DS203 DS205 DS206 DS207 DS208 DS209
        DS301 DS302 DS303 DS304 DS307 DS309 DS310 DS311 DS312 DS314 DS320 DS323 DS401 DS402 DS408
        DS411 DS412 DS420 DS501 DS502 DS503 DS504 DS505 DS506 DS507 DS508 DS509 DS510 DS511
        DS512 DS513 DS602 DS704
    """,
}
# Where it is otherwise, what it is, and why.
OTHERWISE: Final = {
    "DS008": (
        "safe, proposed",
        "a kind that is not a workload may mean something else in its new version",
    ),
    "DS404": ("proposed", "the limit can only be meant to go"),
    "DS409": ("safe, proposed", "a shorter timeout changes what a probe finds"),
    "DS411": ("", "only the registry knows the digest, and the check does not query it"),
}

WIDE: Final = frozenset(test_node_pages.RULES) - test_node_pages.ELSEWHERE
NARROW: Final = OF_FILES.union(rule.id for rule in rule_table.RULES) - WIDE
# Findings about a file's text would get lost in merging an example into a whole manifest.
OF_TEXT: Final = frozenset(("DS001", "DS002", "DS007"))
HEAD: Final = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent, namespace: logging}\n"


def found(rule: str, example: str) -> tuple[Finding, ...] | list[Finding]:
    if rule in WIDE:
        return test_node_pages.found(rule, example)
    if rule in OF_TEXT:
        return looked_at(rule, example if "kind:" in example else HEAD + example).findings
    return looked_at(rule, orjson.dumps(manifest(example)).decode()).findings


@pytest.mark.parametrize("rule", sorted(NARROW | WIDE))
def test_a_rule_brings_the_fixes_that_it_should(rule: str) -> None:
    page = catalogue.page_of(rule)
    assert page is not None, f"write gitops_ds/checks/pages/{rule}.md"
    fixes = [
        one.fix
        for example in page.wrong
        for one in found(rule, example)
        if one.rule == rule and one.fix
    ]
    offered = [
        word
        for word, safe in (("safe", True), ("proposed", False))
        if any(fix.safe is safe for fix in fixes)
    ]
    wished = [word for word, some in SHOULD.items() if rule in some.split()]
    listed = OTHERWISE.get(rule, (", ".join(wished), ""))[0]
    assert ", ".join(offered) == listed, f"list {rule} in SHOULD or OTHERWISE of this file"


def test_every_wish_is_one_of_a_rule_that_is_tried_here() -> None:
    assert {rule for some in SHOULD.values() for rule in some.split()} | set(
        OTHERWISE
    ) <= NARROW | WIDE
    assert all(reason for _, reason in OTHERWISE.values())
