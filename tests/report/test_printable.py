"""Text of a repository and of a commit is shown without characters that change the output around
it.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import git
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.checks.report import printable
from gitops_ds.cli.output import table
from gitops_ds.core import plain_text
from gitops_ds.source.git import object_reader
from tests.gitservers import Upstream

# control characters, surrogates, separators of lines and paragraphs
_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
_BIDIRECTIONAL = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_no_harmful_character_is_printed() -> None:
    # not at the import: a look at all characters takes each worker 0.3 seconds
    harmful = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in _CATEGORIES
        or unicodedata.bidirectional(character) in _BIDIRECTIONAL
    ]
    for character in harmful:
        text = f"a{character}b"
        assert character not in printable.line(text)
        assert character not in printable.message(text) or character == "\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a  b", "a  b"),
        ("…“ä” 北京", "…“ä” 北京"),
        ("a  ", "a"),
        ("a \n\n b\t\r\n", "a\n b"),
        ("##[error]a", "# #[error]a"),
        ("##vso[task]", "# #vso[task]"),
        ("## a", "## a"),
        ("a" * 2_001, "a" * 1_999 + "…"),
        ("a" * 2_000, "a" * 2_000),
    ],
)
def test_a_message(text: str, shown: str) -> None:
    assert printable.message(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a ", "a "),
        ("a\nb", "a\\nb"),
        ("##[error]a", "# #[error]a"),
        ("a" * 501, "a" * 499 + "…"),
        ("a" * 500, "a" * 500),
    ],
)
def test_a_line(text: str, shown: str) -> None:
    assert printable.line(text) == shown


@given(st.text())
def test_a_line_that_is_printed_again_does_not_change(text: str) -> None:
    once = printable.line(text)
    assert printable.line(once) == once


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
