"""YAML as `kubectl get -o yaml` and `kubectl diff` print it, byte by byte: keys in the natural
order of go-yaml, and its quotes and line breaks, which are those of libyaml.

https://github.com/kubernetes-sigs/yaml/tree/master/goyaml.v2 (sorter.go, encode.go, resolve.go)
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import events
from ruamel.yaml.cyaml import CEmitter  # type: ignore[attr-defined]  # None without the C parser

_WIDTH = 80  # columns: a longer text is folded at a space
# Strings that YAML 1.1 parsers read as another type: they are quoted.
_WORDS = frozenset(
    word
    for lower in ("y", "yes", "on", "n", "no", "off", "true", "false", "null")
    for word in (lower, lower.capitalize(), lower.upper())
) | {"", "~", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF"}
_WORDS |= {sign + word for sign in "+-" for word in (".inf", ".Inf", ".INF")}
# without `_`, which go-yaml removes from numbers
_NUMBER = re.compile(
    r"[-+]?(?:0b[01]+|0x[0-9a-fA-F]+|0o?[0-7]+"
    r"|(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)",
    re.ASCII,
)
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII)
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?(?:Z|[-+][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)


def dump(value: Any) -> str:
    """A JSON value as one document."""
    stream = io.StringIO()
    emitter = CEmitter(stream, width=_WIDTH, allow_unicode=True)
    for event in _document(value):
        emitter.emit(event)
    return stream.getvalue()


def _document(value: Any) -> Iterator[events.Event]:
    yield events.StreamStartEvent()
    yield events.DocumentStartEvent(explicit=False)
    yield from _events(value)
    yield events.DocumentEndEvent(explicit=False)
    yield events.StreamEndEvent()


def _events(value: Any) -> Iterator[events.Event]:
    match value:
        case Mapping():
            yield events.MappingStartEvent(None, None, True, flow_style=not value)
            for key in sorted(value, key=_by_name):
                yield _text(key)
                yield from _events(value[key])
            yield events.MappingEndEvent()
        case list() | tuple():
            yield events.SequenceStartEvent(None, None, True, flow_style=not value)
            for item in value:
                yield from _events(item)
            yield events.SequenceEndEvent()
        case str():
            yield _text(value)
        case None | bool():
            yield _plain({None: "null", True: "true", False: "false"}[value])
        case _:
            yield _plain(repr(value))


def _plain(text: str) -> events.Event:
    return events.ScalarEvent(None, None, (True, True), text)


def _text(text: str) -> events.Event:
    style = "|" if "\n" in text else '"' if _reads_as_another_type(text) else None
    return events.ScalarEvent(None, None, (True, True), text, style=style)


def _reads_as_another_type(text: str) -> bool:
    number = text if text.startswith(".") else text.replace("_", "")
    return (
        text in _WORDS
        or (not text.startswith("_") and bool(_NUMBER.fullmatch(number)))
        or bool(_BASE_60.fullmatch(text))
        or bool(_TIME.fullmatch(text))
    )


def _compare(one: str, other: str) -> int:
    """The natural order: digits as numbers, letters after other characters."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a == b:
            continue
        if a.isalpha() and b.isalpha():
            return -1 if a < b else 1
        if a.isalpha() or b.isalpha():
            return -1 if b.isalpha() else 1
        # a zero after another digit is not a leading zero
        lead = "1" if "0" in (a, b) and _digits_before(one, at).strip("0") else ""
        numbers = [_digits(text, at) for text in (one, other)]
        sizes = [(int(lead + digits or 0), len(digits)) for digits in numbers]
        return -1 if (sizes[0], a) < (sizes[1], b) else 1
    return len(one) - len(other)


def _digits(text: str, at: int) -> str:
    """The digits from a position on."""
    match = re.compile("[0-9]*").match(text, at)
    return match[0] if match else ""


def _digits_before(text: str, at: int) -> str:
    """The digits that end at a position."""
    return text[len(text[:at].rstrip("0123456789")) : at]


_by_name = functools.cmp_to_key(_compare)
