"""tests/promises.toml and tests/threat_model.toml, the sources of docs/promises.md and
docs/threat-model.md: every promise and every row names tests that exist.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache

from tests.docs.pages import ROOT

PROMISES: dict[str, list[str]] = {
    promise: tests
    for group in tomllib.loads((ROOT / "tests/promises.toml").read_text("utf-8")).values()
    for promise, tests in group.items()
}
ROWS = tomllib.loads((ROOT / "tests/threat_model.toml").read_text("utf-8"))["rows"]


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the test functions of a file."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    found = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def test_every_promise_is_held_by_tests_that_there_are() -> None:
    assert len(PROMISES) > 10
    rows = {f"{row['who']}: {row['writes']}": row["tests"] for row in ROWS}
    assert len(rows) == len(ROWS)
    for promise, tests in (PROMISES | rows).items():
        assert tests, promise
        for test in tests:
            file, _, name = test.partition("::")
            assert name in names_in(file), test


def test_every_row_of_the_threat_model_holds_a_promise() -> None:
    named = {test for tests in PROMISES.values() for test in tests}
    assert not [f"{row['who']}: {row['writes']}" for row in ROWS if named.isdisjoint(row["tests"])]


def test_every_test_of_a_fault_holds_a_promise() -> None:
    named = {test.partition("::")[0] for tests in PROMISES.values() for test in tests}
    faults = {str(file.relative_to(ROOT)) for file in (ROOT / "tests/faults").glob("test_*.py")}
    assert faults <= named
