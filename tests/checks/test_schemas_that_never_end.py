"""JSON Schemas of a repository that never end, take all memory or can't be followed: a finding at
their line, within the limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from gitops_ds.core.finding import Finding
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.kube.apimachinery import json_schema
from gitops_ds.source.sandbox import cpu_timer
from tests.plan import world
from tests.plan.world import daemonset

SECONDS = 0.5
DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(28)} | {
    "d28": {}
}
NOT_ENOUGH = "the JSON Schemas of this repository need more CPU time"

# By name: the schema of a value, and a part of the message about it.
SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "nested repetition": ({"pattern": "^(a+)+$"}, NOT_ENOUGH),
    "allOf that doubles": ({"$ref": "#/$defs/d0", "$defs": DOUBLING}, NOT_ENOUGH),
    "references in a circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        "the schema can't be resolved",
    ),
    "no regular expression": ({"pattern": "(a"}, "this is not a valid JSON schema"),
    "a reference to elsewhere": ({"$ref": "http://127.0.0.1:9/schema"}, "which is unknown"),
    "a reference to a file": ({"$ref": "file:///etc/passwd"}, "which is unknown"),
    "not a schema": ({"type": "nothing"}, "this is not a valid JSON schema"),
}
VALUE = "a" * 48 + "!"


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    cpu_timer.install(SECONDS)
    yield
    json_schema.limiter.set(None)


def of_parameters(schema: dict[str, Any]) -> tuple[Finding, ...]:
    schema = dict(schema)
    defs = schema.pop("$defs", {})
    whole = {"type": "object", "$defs": defs, "properties": {"x": {"default": VALUE, **schema}}}
    files = {
        "gitops-ds.yaml": {"version": "v1", "name": "one"},
        "agents/a/daemonset.json": daemonset("a"),
        "agents/a/params.schema.json": whole,
    }
    return prepare.prepare(
        world.snapshot({name: orjson.dumps(body, option=2) for name, body in files.items()})
    ).findings


def of_custom(schema: dict[str, Any]) -> tuple[Finding, ...]:
    whole = {
        "properties": {"metadata": {"properties": {"annotations": {"properties": {"x": schema}}}}},
        "$defs": {},
    }
    whole["$defs"] = schema.get("$defs", {})
    settings = {
        "version": "v1",
        "manifests": ["/*.json"],
        "custom": [{"name": "mine", "schema": whole}],
    }
    bodies = [daemonset(name) for name in ("a", "b", "c")]
    for body in bodies:
        body["metadata"]["annotations"] = {"x": VALUE}
    files: dict[str, Any] = {f"{index}.json": body for index, body in enumerate(bodies)}
    return prepare.prepare(
        world.snapshot({"gitops-ds.yaml": orjson.dumps(settings), **files})
    ).findings


@pytest.mark.sampled
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_parameter_schema_without_a_verdict_is_a_refusal_at_its_file(name: str) -> None:
    schema, words = SCHEMAS[name]
    began = time.process_time()
    reported = [finding for finding in of_parameters(schema) if finding.rule == "DS801"]
    assert [finding.message for finding in reported if words in finding.message], reported
    assert all(
        finding.refused and finding.place and finding.place.file == "agents/a/params.schema.json"
        for finding in reported
    )
    assert time.process_time() - began < 20 * SECONDS


@pytest.mark.sampled
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_custom_rule_without_a_verdict_is_reported_once_at_its_line(name: str) -> None:
    schema, words = SCHEMAS[name]
    reported = [finding for finding in of_custom(schema) if finding.rule == "DS901"]
    assert [words in finding.message for finding in reported] == [True], reported
    assert reported[0].place
    assert reported[0].place.file == "gitops-ds.yaml"
    assert reported[0].place.line


@pytest.mark.slow
def test_the_budget_is_shared_by_all_schemas() -> None:
    assert any(
        NOT_ENOUGH in finding.message for finding in of_parameters(SCHEMAS["nested repetition"][0])
    )
    began = time.process_time()
    assert any(NOT_ENOUGH in finding.message for finding in of_parameters({"type": "string"}))
    assert time.process_time() - began < SECONDS


def test_an_ordinary_schema_is_judged_within_the_limit() -> None:
    assert not [finding for finding in of_parameters({"pattern": "^a+!$"}) if finding.refused]
    assert [finding.rule for finding in of_parameters({"pattern": "^b"}) if finding.refused] == [
        "DS006"
    ]
