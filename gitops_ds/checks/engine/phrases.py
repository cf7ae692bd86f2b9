"""The few phrases that every message shares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant: the same but for case, else the most similar one that
    is similar enough.
    """
    words = sorted(set(known))
    same = [one for one in words if one.lower() == word.lower()]
    if same:
        return same[0]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.7)
    return close[0] if close else None


def distance(word: str, other: str) -> int:
    """How many letters must be changed, added or taken away to make one word of the other; upper
    and lower case are the same.
    """
    row = list(range(len(other) + 1))
    for mine in word.lower():
        before, row[0] = row[0], row[0] + 1
        for column, theirs in enumerate(other.lower(), 1):
            before, row[column] = (
                row[column],
                min(before + (mine != theirs), row[column] + 1, row[column - 1] + 1),
            )
    return row[-1]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`: did you mean "X"?`, or nothing."""
    found = nearest(word, known)
    return f': did you mean "{found}"?' if found else ""


def one_of(values: Iterable[Any]) -> str:
    """`a, b or c`, with an empty text left out."""
    words = [str(value) for value in values if value != ""]
    return (
        words[0]
        if len(words) == 1
        else f"{', '.join(words[:-1])} or {words[-1]}"
        if words
        else "nothing"
    )


def shown(value: Any) -> str:
    """A value as a message names it: short, with its sort."""
    match value:
        case None:
            return "null"
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the text "{value if len(value) <= 60 else value[:57] + "..."}"'
        case list():
            return "a list"
        case _:
            return "a mapping"


def wanted(kind: Any) -> str:
    """The sort of value that a schema's `type` asks for."""
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(_SORTS.get(one, str(one)) for one in kinds)


_SORTS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
