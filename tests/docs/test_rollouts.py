"""docs/rollouts.md: every key of the policy has a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gitops_ds.checks.schema import repository_files
from tests.docs.pages import ROOT
from tests.docs.test_promises import names_in

PAGE = (ROOT / "docs/rollouts.md").read_text("utf-8")
SCHEMA = repository_files.schema("rollout")


def keys(schema: Any, path: str = "") -> Iterator[str]:
    """The keys of a schema without keys below them: `a.b`, `list[].c`, `map.NAME.d`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from keys(SCHEMA["$defs"][name], path) if name != "match" else [path]
        return
    for one in schema.get("anyOf", ()):
        if one.get("type") == "object":
            schema = one
    if schema.get("type") == "array" and path in ("stages", "freeze", "after"):
        yield from keys(schema["items"], f"{path}[]")
    elif "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from keys(inner, f"{path}.{name}" if path else name)
    elif path in ("gates", "windows"):
        yield from keys(schema["additionalProperties"], f"{path}.NAME")
    else:
        yield path


def test_every_key_of_the_policy_has_a_row_and_no_other() -> None:
    table = PAGE.partition("\n## The policy\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.\[\]]+)` \|", table, re.MULTILINE)
    named = {re.sub(r"gates\.\w+\.", "gates.NAME.", row) for row in rows}
    assert named - {"stages"} == set(keys(SCHEMA))


def test_each_row_of_the_comparison_names_a_test() -> None:
    page = (ROOT / "docs/comparison.md").read_text("utf-8")
    table = page.partition("\n## Compared with")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "::" in line]
    assert len(rows) == table.count("\n| ") - 1
    for row in rows:
        found = re.search(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert found
        assert found[2] in names_in(found[1])
