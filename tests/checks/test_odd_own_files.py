"""A value of another type anywhere in a file of our format is a finding with its place, not an
exception: YAML reads `yes` as a boolean and `1.30` as a number.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core.objects import Path
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy.pipeline import prepare
from tests import profiles
from tests.plan.world import daemonset
from tests.render.test_robust import changed, places

CLUSTER = "clusters/test.yaml"
ROLLOUT = "agents/agent/rollout.yaml"
MATCH = [{"key": "x", "in": ["b", "c"]}, {"key": "y", "notIn": ["d"]}, {"key": "z", "exists": True}]
POOL = {
    "nodes": 2,
    "match": MATCH,
    "labels": {"l": "m"},
    "taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}],
    "allocatable": {"cpu": "2", "memory": "1Gi"},
}
CANARY = {
    "name": "canary",
    "nodes": {"count": 1},
    "where": {"pool": ["p"], "match": MATCH},
    "soak": "2m",
    "windows": ["w"],
    "approval": {"from": ["a"], "within": "1h"},
}
FILES: dict[str, Any] = {
    CLUSTER: {"environment": "e", "pools": {"p": POOL}, "ignore": {"match": MATCH}},
    "environments/e.yaml": {"rollout": {"limits": {"parked": "10%"}}},
    ROLLOUT: {
        "stages": [CANARY, {"name": "rest", "pace": {"start": 1, "max": "50%"}}],
        "windows": {"w": {"cron": "0 8 * * 1-5", "for": "8h"}},
        "freeze": [{"from": "2026-12-24T00:00:00Z", "to": "2027-01-02T00:00:00Z"}],
        "after": [{"agent": "other"}],
        "limits": {"atRisk": {"cluster": "30%"}},
    },
    "agents/agent/agent.yaml": {"class": "x", "dependsOn": ["other"]},
    "agents/agent/variants.yaml": {"variants": [{"name": "big", "nodes": {"pool": ["p"]}}]},
    "gitops-ds.yaml": {"version": "v1", "defaults": {"labels": {"a": "b"}}},
}
TARGETS = [(name, path) for name, value in FILES.items() for path in places(value)]
ODD = (True, 3, 1.5, "x", None, [], {}, [True], [3], [[]], {"a": True}, {"a": [True]})


def prepared(file: str, path: Path, odd: Any) -> prepare.Prepared:
    values = {**FILES, file: changed(FILES[file], path, odd)}
    values["agents/agent/daemonset.json"] = daemonset("agent", "example.com/agent:1", "default")
    files = {PurePosixPath(name): orjson.dumps(value) for name, value in values.items()}
    return prepare.prepare(SourceTree(None, files), cluster="test")


@settings(max_examples=profiles.examples(40))
@given(target=st.sampled_from(TARGETS), odd=st.sampled_from(ODD))
def test_a_value_of_another_type_causes_no_exception(target: tuple[str, Path], odd: Any) -> None:
    prepared(*target, odd)


@pytest.mark.parametrize(
    ("file", "path", "odd"),
    [
        (CLUSTER, ("pools", "p", "match", 0, "in"), [True]),
        (CLUSTER, ("pools", "p", "match", 0, "in"), []),
        (CLUSTER, ("pools", "p", "match", 0, "in"), 3),
        (ROLLOUT, ("stages",), True),
        (ROLLOUT, ("stages", 0, "name"), []),
        (ROLLOUT, ("stages", 0, "where", "match", 0, "in"), [1.30]),
    ],
)
def test_it_is_a_finding_with_its_place(file: str, path: Path, odd: Any) -> None:
    found = [one for one in prepared(file, path, odd).findings if one.path[: len(path)] == path]
    places = [one.place for one in found if one.refused and one.place is not None]
    assert {(place.file, place.line > 0, place.column > 0) for place in places} == {
        (file, True, True)
    }
