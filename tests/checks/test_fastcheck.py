"""The fast check errs to one side only: what it passes, jsonschema passes. Mutated documents prove
it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.apimachinery import kubernetes_versions
from gitops_ds.checks.schema import error_messages, fastcheck, manifests
from gitops_ds.yaml import parser
from tests import profiles

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
NAMES = [
    "name",
    "spec",
    "metadata",
    "image",
    "protocol",
    "containerPort",
    "nonsense",
    "env",
    "value",
    "operator",
    "key",
]
VALUES = [
    None,
    True,
    0,
    -1,
    1 << 40,
    1.5,
    "",
    "80",
    "Exists",
    "TCP",
    "x",
    "2026-01-01T00:00:00Z",
    [],
    {},
    [None],
    [{}],
    {"a": "b"},
    {"name": "x"},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    for step, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        found += places(inner, (*path, step))
    return found


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    body = copy.deepcopy(draw(st.sampled_from([RIGHT, *BODIES])))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(
            st.sampled_from(
                [one for one in places(body) if one and one[0] not in ("apiVersion", "kind")]
                or [("spec",)]
            )
        )
        inner = body
        for step in path[:-1]:
            inner = inner[step]
        match draw(st.sampled_from(["set", "remove", "add", "twice"])):
            case "set":
                inner[path[-1]] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "remove":
                inner.pop(path[-1], None) if isinstance(inner, dict) else inner.pop(path[-1])
            case "add" if isinstance(inner, dict):
                inner[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "twice" if isinstance(inner, list):
                inner.append(copy.deepcopy(inner[path[-1]]))
            case _:
                pass
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
