"""docs/promises.md: every promise names tests, and the tests are there."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/promises.md").read_text("utf-8")
_ROW = re.compile(r"^\| (?P<promise>.+?) \| (?P<tests>.+?) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the test functions of a file."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    found = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def test_every_promise_is_held_by_tests_that_there_are() -> None:
    promised = PAGE.partition("\n## Resources\n")[0]
    rows = [row for row in _ROW.finditer(promised) if row["tests"] != "held by"]
    assert len(rows) > 10
    for row in rows:
        named = _TEST.findall(row["tests"])
        assert named, row["promise"]
        assert _TEST.sub("", row["tests"]).strip(" ,") == "", row["promise"]
        for file, name in named:
            assert name in names_in(file), f"{file}::{name}"


def test_every_test_of_a_fault_holds_a_promise() -> None:
    named = set(_TEST.findall(PAGE))
    for file in sorted((ROOT / "tests/faults").glob("test_*.py")):
        path = file.relative_to(ROOT).as_posix()
        assert any(name == path for name, _ in named), path
