"""The patterns of .gitopsdsignore, by the rules of gitignore."""

from __future__ import annotations

import time
from pathlib import PurePosixPath

import pytest

from gitops_ds.source.render import ignore

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
    ("file[^0-9].yaml", "filea.yaml", True),
    ("file[^0-9].yaml", "file7.yaml", False),
    ("[!a^-[]", "b", True),
    ("\\[a]", "[a]", True),
    ("\\*", "a", False),
    ("[a\\?", "a", False),
    ("[z-a]", "z", False),
    ("# a comment", "# a comment", False),
    ("\\#a", "#a", True),
    ("a  ", "a", True),
    ("a\\ ", "a ", True),
    ("*.yaml\n!keep.yaml", "keep.yaml", False),
    ("*.yaml\n!keep.yaml", "drop.yaml", True),
    ("dir/\n!dir/keep.yaml", "dir/keep.yaml", True),
    ("[z-a", "[z-a", True),
    ("a.b", "aXb", False),
    ("a*b*c", "abbc", True),
    ("a*b*c", "acb", False),
    ("*a*", "bab", True),
    ("**/**/a", "x/a", True),
    ("a/**/**/b", "a/b", True),
    ("a/**", "a", False),
    ("x/**/a/**/b", "x/a/a/y/b", True),
]


@pytest.mark.parametrize(("lines", "path", "taken"), ROWS)
def test_a_pattern_matches_the_files_that_git_would_ignore(
    lines: str, path: str, taken: bool
) -> None:
    assert ignore.patterns(lines.split("\n")).take(PurePosixPath(path)) is taken


@pytest.mark.parametrize(
    ("glob", "path", "taken"),
    [
        ("*.yaml", "a.yaml", True),
        ("*.yaml", "x/a.yaml", False),
        ("legacy/**/*.yaml", "legacy/a.yaml", True),
    ],
)
def test_an_anchored_pattern_means_its_own_folder(glob: str, path: str, taken: bool) -> None:
    assert ignore.patterns([glob], anchored=True).take(PurePosixPath(path)) is taken


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "*b", "a" * 250),
        ("**/a/" * 40 + "b", "a/" * 500 + "c"),
        ("x/" + "**/" * 200 + "b", "x/" + "a/" * 500 + "c"),
    ],
)
def test_no_pattern_searches_indefinitely(pattern: str, path: str) -> None:
    started = time.process_time()
    assert not ignore.patterns([pattern]).take(PurePosixPath(path))
    # tenths of a second; by trying every way it would be years
    assert time.process_time() - started < 10
