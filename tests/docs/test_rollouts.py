"""The rollout policy's reference has the defaults of the policy; the comparison names tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gitops_ds.checks.schema import repository_files
from gitops_ds.core.rollouts import rollout_policy
from tests.docs.pages import ROOT
from tests.docs.sources import PARSED, attributes
from tests.docs.test_promises import names_in

SCHEMA = repository_files.schema("rollout")
# What a group needs beside the key with the default.
REQUIRED = {
    "stages": {"name": "some"},
    "approval": {"from": ["team"]},
    "webhook": {"url": "https://desk.example.com"},
    "windows": {"cron": "0 1 * * *", "length": "1h"},
    "after": {"agent": "other"},
}


def defaults(schema: Any, wrap: Any = lambda document: document) -> Iterator[tuple[Any, Any]]:
    """Documents of the policy with a key at the default of the schema, and without that key."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", ()):
        yield from defaults(one, wrap)
    for name, inner in schema.get("properties", {}).items():
        if "default" in inner:
            yield wrap({name: inner["default"]}), wrap({})
        needs = REQUIRED.get(name, {})
        yield from defaults(inner, lambda one, n=name, r=needs: wrap({n: {**r, **one}}))
        if isinstance(items := inner.get("items"), dict):
            yield from defaults(items, lambda one, n=name, r=needs: wrap({n: [{**r, **one}]}))
        if isinstance(values := inner.get("additionalProperties"), dict):
            yield from defaults(values, lambda one, n=name, r=needs: wrap({n: {"x": {**r, **one}}}))


CASES = list(defaults(SCHEMA))


def test_most_keys_have_a_default() -> None:
    assert len(CASES) > 30


@pytest.mark.parametrize(("explicit", "absent"), CASES, ids=[str(one) for one, _ in CASES])
def test_a_default_of_the_schema_is_that_of_the_policy(explicit: Any, absent: Any) -> None:
    assert rollout_policy.decode(explicit) == rollout_policy.decode(absent)


def test_the_schema_has_the_keys_of_a_policy_and_of_a_gate() -> None:
    for type, group in (
        (rollout_policy.RolloutPolicy, SCHEMA),
        (rollout_policy.Gate, SCHEMA["properties"]["gates"]["additionalProperties"]),
    ):
        keys = {field.encode_name for field in msgspec.structs.fields(type)}
        assert group["properties"].keys() == keys, "change schemas/rollout.schema.json"


@PARSED
def test_each_key_of_a_policy_is_read() -> None:
    types = [value for value in vars(rollout_policy).values() if isinstance(value, type)]
    groups = [one for one in types if issubclass(one, msgspec.Struct) and one.__struct_fields__]
    keys = {field for group in groups for field in group.__struct_fields__}
    read = attributes("rollouts", "core.rollouts", "kube.apimachinery", "service.rollouts")
    # their only values state what holds without them
    stated = {"except_", "config", "rolls"}
    assert keys - read == stated, "a decision must read the key"


def test_each_row_of_the_comparison_names_a_test() -> None:
    page = (ROOT / "docs/comparison.md").read_text("utf-8")
    table = page.partition("\n## Compared with")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "::" in line]
    assert len(rows) == table.count("\n| ") - 1
    for row in rows:
        found = re.search(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert found
        assert found[2] in names_in(found[1])
