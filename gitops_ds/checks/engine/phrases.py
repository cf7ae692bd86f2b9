"""Phrases of messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The most similar known word: equal except for case, otherwise similar enough; None without
    one.
    """
    import difflib  # few checks need it

    words = sorted(set(candidates))
    same = [other for other in words if other.lower() == word.lower()]
    if same:
        return same[0]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.7)
    return close[0] if close else None


def distance(word: str, other: str) -> int:
    """The edit distance of two words (letters changed, added or removed), ignoring case."""
    row = list(range(len(other) + 1))
    for mine in word.lower():
        before, row[0] = row[0], row[0] + 1
        for column, theirs in enumerate(other.lower(), 1):
            before, row[column] = (
                row[column],
                min(before + (mine != theirs), row[column] + 1, row[column - 1] + 1),
            )
    return row[-1]


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`: did you mean "X"?`, or nothing."""
    near = nearest(word, words)
    return f': did you mean "{near}"?' if near else ""


def one_of(values: Iterable[Any]) -> str:
    """`a, b or c`, without empty strings."""
    words = [str(value) for value in values if value != ""]
    return (
        words[0]
        if len(words) == 1
        else f"{', '.join(words[:-1])} or {words[-1]}"
        if words
        else "nothing"
    )


def shown(value: Any) -> str:
    """A value with its type, shortened for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the string "{value if len(value) <= 60 else value[:57] + "..."}"'
        case list():
            return "a list"
        case _:
            return "an object"


def wanted(kind: Any) -> str:
    """The English name of a JSON Schema type."""
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(_TYPES.get(kind, str(kind)) for kind in kinds)


_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
