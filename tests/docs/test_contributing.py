"""CONTRIBUTING.md and docs/development.md name every directory of tests, and no path that does not
exist; a change of the first page needs at most four files.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

CONTRIBUTING, DEVELOPMENT = (
    (ROOT / name).read_text("utf-8") for name in ("CONTRIBUTING.md", "docs/development.md")
)
PATH = re.compile(r"`((?:gitops_ds|tests|scripts|docs|schemas|deploy|benchmarks)/[\w./-]*)`")
CHANGES = [
    (cells[0], PATH.findall(cells[1]))
    for row in re.findall(
        r"^\| (.+) \|$", CONTRIBUTING.partition("\n## First change\n")[2], re.MULTILINE
    )
    if (cells := row.split(" | "))[0] != "new"
]


@pytest.mark.parametrize(
    "directory", sorted(path.parent.name for path in (ROOT / "tests").glob("*/__init__.py"))
)
def test_every_directory_of_tests_has_a_row(directory: str) -> None:
    assert re.search(rf"^\|.*`tests/{directory}/`.*\|$", DEVELOPMENT, re.MULTILINE)


@pytest.mark.parametrize("path", sorted({*PATH.findall(CONTRIBUTING), *PATH.findall(DEVELOPMENT)}))
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("path", "names"), re.findall(r"`(gitops_ds/[\w/]+\.py)` \((`[^)]+`)\)", CONTRIBUTING)
)
def test_a_name_of_a_first_change_is_in_its_file(path: str, names: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert [name for name in re.findall(r"`(\w+)`", names) if name not in text] == []


@pytest.mark.parametrize(("change", "files"), CHANGES, ids=[change for change, _ in CHANGES])
def test_a_first_change_names_its_files(change: str, files: list[str]) -> None:
    assert 1 <= len(files) <= 4


def test_the_first_changes_are_a_dozen() -> None:
    assert len(CHANGES) == 12
