"""The patterns of .gitopsdsignore, by the rules of gitignore."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gitops_ds.render import ignore

ROWS = [
    ("docs/**", "docs/a/b.yaml", True),
    ("docs/**", "x/docs/a.yaml", False),
    ("docs/", "x/docs/a.yaml", True),
    ("docs/", "docs", False),
    ("/docs", "x/docs/a.yaml", False),
    ("*.md", "a/b/c.md", True),
    ("a/*.yaml", "a/b.yaml", True),
    ("a/*.yaml", "a/b/c.yaml", False),
    ("a/**/c.yaml", "a/c.yaml", True),
    ("a/**/c.yaml", "a/b/b/c.yaml", True),
    ("**/test", "x/y/test/a.yaml", True),
    ("file?.yaml", "file1.yaml", True),
    ("file[0-9].yaml", "file7.yaml", True),
    ("file[!0-9].yaml", "file7.yaml", False),
    ("file[]a].yaml", "file].yaml", True),
    ("# a comment", "# a comment", False),
    ("\\#a", "#a", True),
    ("a  ", "a", True),
    ("a\\ ", "a ", True),
    ("*.yaml\n!keep.yaml", "keep.yaml", False),
    ("*.yaml\n!keep.yaml", "drop.yaml", True),
    ("dir/\n!dir/keep.yaml", "dir/keep.yaml", True),
    ("[z-a", "[z-a", True),
    ("a.b", "aXb", False),
]


@pytest.mark.parametrize(("lines", "path", "taken"), ROWS)
def test_a_pattern_takes_what_git_would_ignore(lines: str, path: str, taken: bool) -> None:
    assert ignore.patterns(lines.split("\n")).take(PurePosixPath(path)) is taken


@pytest.mark.parametrize(
    ("glob", "path", "taken"),
    [("*.yaml", "a.yaml", True), ("*.yaml", "x/a.yaml", False), ("legacy/**/*.yaml", "legacy/a.yaml", True)],
)
def test_an_anchored_pattern_means_its_own_folder(glob: str, path: str, taken: bool) -> None:
    assert ignore.patterns([glob], anchored=True).take(PurePosixPath(path)) is taken
