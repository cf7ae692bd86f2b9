"""Text for people: a number with its noun; text from other sources as one printable line, safe for
a terminal, an event or a table. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `2 files`, `1,000 files`; `plural` if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def listed(items: Iterable[T], most: int, text: Callable[[T], str] = str) -> str:
    """`a, b and 3 more`: the texts of at most that many of them, and the number of the others."""
    every = list(items)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(map(text, every[:most])) + more


LONGEST: Final = 500


def line(text: str, longest: int = LONGEST) -> str:
    """The text with unprintable characters (control, bidirectional, line ends) escaped, truncated
    if too long.
    """
    text = shortened(text, longest)
    return (
        text
        if text.isprintable()
        else "".join(
            character if character.isprintable() else escaped(character) for character in text
        )
    )


def shortened(text: str, longest: int) -> str:
    """The text in at most `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def escaped(char: str) -> str:
    """The character by its number: `\\x1b`."""
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
