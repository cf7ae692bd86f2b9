"""CONTRIBUTING.md names every directory, and no file that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
DIRECTORIES = sorted(
    str(path.parent.relative_to(ROOT))
    for top in ("gitops_ds", "tests")
    for path in (ROOT / top).glob("*/*.py")
    if path.name == "__init__.py"
)
FILES = sorted(
    {
        name
        for name in re.findall(r"`([\w./-]+/[\w./-]+)`", PAGE)
        if re.match("(gitops_ds|tests|scripts|docs|schemas|deploy)/", name) and "NAME" not in name
    }
)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_directory_has_a_row(directory: str) -> None:
    assert re.search(rf"^\|.*`{directory}/`.*\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", FILES)
def test_every_file_exists(name: str) -> None:
    assert (ROOT / name).exists()
