"""The fast check errs to one side only: what it passes, jsonschema passes. Mutated documents prove
it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.checks.schema import error_messages, fastcheck, manifests
from gitops_ds.kube.apimachinery import kubernetes_versions
from gitops_ds.yaml import parser
from tests import profiles
from tests.truth import mutations

BODIES = [
    one.value
    for path in sorted(Path(__file__).parent.glob("cases/*/input.yaml"))
    for one in parser.read(path.name, path.read_bytes()).documents
    if f"{one.value['apiVersion']}/{one.value['kind']}"
    in manifests.schemas_of(kubernetes_versions.NEWEST).kinds
]
RIGHT = (
    parser.read("right", (Path(__file__).parent / "cases/right/input.yaml").read_bytes())
    .documents[0]
    .value
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    body = copy.deepcopy(draw(st.sampled_from([RIGHT, *BODIES])))
    random = Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 3))):
        if len(body) > 2:  # more than its kind
            mutations.structural(random, body)
    return body


def agree(body: Any) -> tuple[bool, bool]:
    schemas = manifests.schemas_of(kubernetes_versions.NEWEST)
    name = schemas.kinds[f"{body['apiVersion']}/{body['kind']}"]
    return schemas.passes(body["apiVersion"], body["kind"], body), error_messages.validator(
        schemas.definitions, name
    ).is_valid(body)


@settings(max_examples=profiles.examples(300), deadline=None)
@given(mutated())
def test_jsonschema_accepts_what_the_fast_check_accepts(body: Any) -> None:
    fast, slow = agree(body)
    assert slow or not fast


def test_the_fast_check_passes_what_is_right() -> None:
    assert agree(RIGHT) == (True, True)


def test_a_keyword_without_a_closure_is_an_error_at_once() -> None:
    with pytest.raises(fastcheck.UnknownKeyword):
        fastcheck.Checks({"a": {"type": "string", "pattern": "x"}}).of("a")


@pytest.mark.parametrize("version", kubernetes_versions.VERSIONS)
def test_every_definition_of_every_version_compiles(version: str) -> None:
    schemas = manifests.schemas_of(version)
    for name in schemas.definitions:
        schemas.checks.of(name)
    assert "apps/v1/DaemonSet" in schemas.kinds


def test_a_key_of_another_type_is_not_a_twin_and_causes_no_crash() -> None:
    assert list(fastcheck.twins([{"name": []}, {"name": []}, {"name": {}}], ("name",))) == []
    assert list(fastcheck.twins([{"name": "a"}, {"name": []}, {"name": "a"}], ("name",))) == [
        (0, 2)
    ]


def test_entries_of_a_set_differ() -> None:
    assert list(fastcheck.twins(["a", "b", "a"], ())) == [(0, 2)]
