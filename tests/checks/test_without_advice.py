"""A service and `apply` check only for blocking findings, the service only changed objects; they
must not miss one for that.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from random import Random

import pytest

from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import check
from gitops_ds.core.sources.source_tree import CachedResults, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import prepare
from tests.truth import bases, mutations


def snapshot(*bodies: bases.Body) -> SourceTree:
    return SourceTree(
        None,
        {
            PurePosixPath(f"{number}.json"): json.dumps(body).encode()
            for number, body in enumerate(bodies)
        },
    )


@pytest.mark.parametrize("seed", range(60))
def test_blocking_findings_are_the_same_with_advice_and_without(seed: int) -> None:
    random = Random(seed)
    good, other = bases.generated(random), bases.generated(random)
    before = prepare.prepare(snapshot(good, other), namespace="default", advice=False)
    known = CachedResults(clean={check.circumstances(before.bundle): before.clean})
    bad, _ = mutations.mutated(random, good)
    after = snapshot(bad, other)
    prepared = prepare.prepare(after, namespace="default")
    few = prepare.prepare(replace(after, cached=known), namespace="default", advice=False)
    assert few.findings == tuple(finding for finding in prepared.findings if finding.refused)
    assert few.deployable == prepared.deployable
    assert few.bundle == prepared.bundle


def test_no_rule_over_all_objects_is_blocking() -> None:
    assert not any(rule.refused for rule in cluster_rules.RULES)


def test_some_of_these_are_blocking_and_advice_is_omitted() -> None:
    random = Random(1)
    bodies = [mutations.mutated(random, bases.generated(random))[0] for _ in range(40)]
    prepared = [prepare.prepare(snapshot(body), namespace="default") for body in bodies]
    assert 5 < sum(one.deployable for one in prepared) < 35
    assert any(not finding.refused for one in prepared for finding in one.findings)
