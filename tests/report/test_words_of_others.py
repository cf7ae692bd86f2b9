"""What others write into a commit reaches terminals, tables and events as text, never as something
that acts.
"""

from __future__ import annotations

from pathlib import Path

import git
import pytest

from gitops_ds.cli.output import table
from gitops_ds.git import object_reader
from gitops_ds.model import plain_text
from tests.gitservers import Upstream

HARMFUL = [
    ("Eve\x1b]0;t\x07", "Eve\\x1b]0;t\\x07"),
    ("gnp.\u202eexe", "gnp.\\u202eexe"),
    ("a\u2066b\u2069", "a\\u2066b\\u2069"),
    ("two\nlines\r", "two\\x0alines\\x0d"),
    ("tab\there", "tab\\x09here"),
    ("\x9b31m", "\\x9b31m"),
    ("\u2028", "\\u2028"),
    ("\U000e0041", "\\U000e0041"),
    ("\udcff", "\\udcff"),
    ("Jürgen 北京 👍", "Jürgen 北京 👍"),
]


@pytest.mark.parametrize(("text", "shown"), HARMFUL)
def test_a_line_holds_nothing_that_acts(text: str, shown: str) -> None:
    assert plain_text.line(text) == shown
    assert table.columns(["AUTHOR"], [[text]]) == f"AUTHOR\n{shown}\n".replace("\n\n", "\n")


def test_a_line_is_cut() -> None:
    assert len(plain_text.line("x" * 10_000)) == plain_text.LONGEST


@pytest.mark.parametrize(
    ("text", "shown"), [case for case in HARMFUL if "\n" not in case[0] and "\udcff" not in case[0]]
)
def test_author_and_subject_of_a_commit_are_plain(tmp_path: Path, text: str, shown: str) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.git(
        "-c",
        f"user.name=x{text}x",
        "commit",
        "--allow-empty",
        f"--author=x{text}x <eve@example.com>",
        "-m",
        f"x{text}x",
    )
    with git.Repo(upstream.path) as repository:
        info = object_reader._info(repository.head.commit)
    assert info.author == f"x{shown}x <eve@example.com>"
    assert info.subject == f"x{shown}x"
