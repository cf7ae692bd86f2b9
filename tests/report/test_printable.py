"""Text of a repository is printed without characters that change the output around it."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.report import printable

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
