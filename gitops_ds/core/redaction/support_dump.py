"""Redaction of a support dump, with false positives rather than false negatives. Pure.

All parts are read before the first is written: a value that is a secret in one place (the variable
DB_PASSWORD) is hidden everywhere (the message of an event, a log line).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gitops_ds.core.redaction import texts
from gitops_ds.core.redaction.objects import hidden
from gitops_ds.core.redaction.patterns import HIDDEN, ORDINARY

_KNOWN_MOST = 5_000
_SHORTEST, _LONG = 4, 8  # characters


class Redactor:
    """Hides secrets by place, name or form, and the secrets of all learned parts everywhere."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}  # each with its JSON form

    def learn(self, part: Any) -> None:
        """Adds the secrets of a document or a text."""
        hidden(part, self._take, over_redact=True)

    def document(self, document: Any) -> Any:
        """The document without possible secrets."""
        redacted = hidden(document, self._take, over_redact=True)
        present = self._in(orjson.dumps(redacted, option=orjson.OPT_NON_STR_KEYS).decode())
        return _without(redacted, present) if present else redacted

    def text(self, text: str) -> str:
        """The text without possible secrets."""
        redacted = texts.foreign(text, self._take)
        present = self._in(redacted)
        return _redacted(redacted, present) if present else redacted

    def _in(self, written: str) -> list[str]:
        """The known secrets in a text, the longest first."""
        words = [
            one
            for one, escaped in self._known.items()
            if one in written or (escaped is not one and escaped in written)
        ]
        return sorted(words, key=lambda one: (-len(one), one))

    def _take(self, value: str) -> None:
        lines = [line.strip() for line in value.splitlines()]
        several = [line for line in lines if len(line) >= _LONG] if len(lines) > 1 else []
        for text in (value.strip(), *several):
            if len(self._known) < _KNOWN_MOST and _is_searchable(text):
                escaped = orjson.dumps(text)[1:-1].decode()
                self._known[text] = text if escaped == text else escaped


def _is_searchable(value: str) -> bool:
    """Whether to hide the value elsewhere too: a short or common word may mean something else
    there.
    """
    usual = value.lower() in ORDINARY or HIDDEN in value or (value.isdigit() and len(value) < _LONG)
    return len(value) >= _SHORTEST and not usual


def _without(part: Any, words: list[str]) -> Any:
    match part:
        case Mapping():
            return {
                _redacted(str(key), words): _without(value, words) for key, value in part.items()
            }
        case list():
            return [_without(value, words) for value in part]
        case str():
            return _redacted(part, words)
        case bool() | None:
            return part
        case _:
            return HIDDEN if str(part) in words else part


def _redacted(text: str, words: list[str]) -> str:
    for word in words:
        if word in text:
            # A short value must be a whole word; in an escaped line, \\n may precede it.
            pattern = (
                re.escape(word)
                if len(word) >= _LONG
                else rf"(?:(?<!\w)|(?<=\\n)){re.escape(word)}(?!\w)"
            )
            text = re.sub(pattern, HIDDEN, text)
    return text
