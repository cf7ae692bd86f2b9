"""What a support dump does not tell: a veil over everything that may be a secret. Pure, and rather
too much than too little.

First every part is learned from, then every part is told: a value that one place gives away as
secret (the variable DB_PASSWORD) is hidden wherever it comes again (an event's message, a line of
the log).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gitops_ds.redaction import texts
from gitops_ds.redaction.objects import hidden
from gitops_ds.redaction.patterns import HIDDEN, ORDINARY

_KNOWN_MOST = 5_000
_SHORTEST, _LONG = 4, 8  # characters


class Veil:
    """Hides what is secret by its place, its name, its form, or because `learn` saw it in such a
    place.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}  # each with how JSON writes it

    def learn(self, part: Any) -> None:
        """Remembers the secrets of a document or a text."""
        hidden(part, self._take, rather_too_much=True)

    def document(self, document: Any) -> Any:
        """The same document with all that may be secret hidden, wherever it stands."""
        veiled = hidden(document, self._take, rather_too_much=True)
        present = self._in(orjson.dumps(veiled, option=orjson.OPT_NON_STR_KEYS).decode())
        return _without(veiled, present) if present else veiled

    def text(self, text: str) -> str:
        """The same for a text."""
        veiled = texts.content(text, self._take)
        present = self._in(veiled)
        return _redacted(veiled, present) if present else veiled

    def _in(self, written: str) -> list[str]:
        """The known secrets that come in what is written down, the longest first: of many, most
        texts hold none.
        """
        found = [
            one
            for one, escaped in self._known.items()
            if one in written or (escaped is not one and escaped in written)
        ]
        return sorted(found, key=lambda one: (-len(one), one))

    def _take(self, value: str) -> None:
        lines = [line.strip() for line in value.splitlines()]
        several = [line for line in lines if len(line) >= _LONG] if len(lines) > 1 else []
        for one in (value.strip(), *several):
            if len(self._known) < _KNOWN_MOST and _worth_it(one):
                escaped = orjson.dumps(one)[1:-1].decode()
                self._known[one] = one if escaped == one else escaped


def _worth_it(value: str) -> bool:
    """Whether to look for the value elsewhere: a short or usual word would hide what it does not
    mean.
    """
    usual = value.lower() in ORDINARY or HIDDEN in value or (value.isdigit() and len(value) < _LONG)
    return len(value) >= _SHORTEST and not usual


def _without(part: Any, known: list[str]) -> Any:
    match part:
        case Mapping():
            return {
                _redacted(str(key), known): _without(value, known) for key, value in part.items()
            }
        case list():
            return [_without(value, known) for value in part]
        case str():
            return _redacted(part, known)
        case bool() | None:
            return part
        case _:
            return HIDDEN if str(part) in known else part


def _redacted(text: str, known: list[str]) -> str:
    for one in known:
        if one in text:
            # Of a short value whole words alone; in a line that was written into another, \\n comes
            # before a word.
            pattern = (
                re.escape(one)
                if len(one) >= _LONG
                else rf"(?:(?<!\w)|(?<=\\n)){re.escape(one)}(?!\w)"
            )
            text = re.sub(pattern, HIDDEN, text)
    return text
