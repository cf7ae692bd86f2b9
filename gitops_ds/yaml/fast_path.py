"""Parses the YAML of most manifests line by line, four times as fast as libyaml: block mappings and
lists of short scalars, of flow collections in one line, and of literal block scalars (`|`).

It parses a file as a whole or not at all: a file with a construct whose value might differ from
libyaml's (tests/yaml/test_fast_path.py compares them), or with a finding, is parsed by `parser`. It
is fast because files repeat the same lines: each distinct line is analyzed once.
"""

from __future__ import annotations

import hashlib
import math
import re
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from gitops_ds.yaml import scalars

_MOST_BYTES: Final = 100_000  # below all limits of libyaml.py
# Below the 1,024 characters that a key may be away from its colon in libyaml; longer lines, such as
# the certificates of a kubeconfig, are not kept in `_SEEN`.
_LONGEST: Final = 1_000
_DEEPEST: Final = 40
_SEEN_AT_MOST: Final = 20_000
_READ_AT_MOST: Final = 20_000

_COMMENT: Final = r"#[\t\x20-\x7e]*"
KEY: Final = r"[A-Za-z_][A-Za-z0-9./_-]*"
# Starts and ends with characters that exclude other syntax, and contains neither ": " nor " #". No
# character of the possessive part (`++`) can begin what may follow it.
_BARE: Final = (
    r"(?:(?:--?|\.)?[A-Za-z0-9]|[$(/_~])(?:[!$%&()*+,\-./0-9;<=>?@A-Z^_a-z|~]++|:(?=[^ ])|(?<=[^ "
    r"])#| +(?=[^ #]))*"
)
_QUOTED: Final = r"\"[\x20\x21\x23-\x5b\x5d-\x7e]*\"|'[\x20-\x26\x28-\x7e]*'"
# A scalar in a flow collection. A colon in it is an error in some versions of libyaml.
_ITEM: Final = rf"(?:--?)?[A-Za-z0-9$/_][A-Za-z0-9$%()+./=@^_~-]*|{_QUOTED}"

LINE: Final = re.compile(rf"( *)(- +)?(?:({KEY}):(?: +|\Z))?(.*)\Z")
_NOTHING: Final = re.compile(rf" *(?:{_COMMENT})?\Z")
_END: Final = rf"(?: +{_COMMENT})? *\Z"
_SCALAR: Final = re.compile(rf"({_BARE}|{_QUOTED}){_END}")
_AFTER_FLOW: Final = re.compile(_END)
# a bracket or a comma, a key, or a scalar
_TOKEN: Final = re.compile(rf" *(?:([\[\]{{}},])|({KEY}): +|({_ITEM})(?=[ ,\]}}]))")
ITEMS: Final = re.compile(_ITEM)

_NEW: Final = "---"
# The indentation of the line, whether it starts with a dash, the column of the key, the key,
# whether a value follows, the value.
Line = tuple[int, bool, int, str | None, bool, Any]
BLANK: Final[Line] = (-1, False, 0, None, False, None)
_SEEN: Final[dict[str, Line]] = {}
# The first four parts of the lines with a key, by their text before the colon.
_KEYS_SEEN: Final[dict[str, tuple[int, bool, int, str]]] = {}
# The digests of files of this syntax: the file is not parsed again for the place of a finding.
_READ: Final[set[bytes]] = set()


class _Literal(Enum):
    """A literal block scalar by its header: with or without one final line break."""

    CLIP = "|"
    STRIP = "|-"


_COLLECTIONS: Final = (list, dict)
_LITERAL: Final = {style.value: style for style in _Literal}


class _Unsure(Exception):
    """The syntax requires libyaml."""


def read(data: bytes) -> list[tuple[int, dict[str, Any]]] | None:
    """The non-empty documents, each with its number from 0; None if the file has other syntax."""
    if len(data) > _MOST_BYTES or not data.isascii():
        return None
    try:
        documents = [(number, _document(lines)) for number, lines in _documents(data)]
    except _Unsure:
        return None
    if len(_READ) < _READ_AT_MOST:
        _READ.add(hashlib.sha256(data).digest())
    return documents


def reads(data: bytes) -> bool:
    """Whether a file has this syntax."""
    return hashlib.sha256(data).digest() in _READ or read(data) is not None


def _documents(data: bytes) -> list[tuple[int, list[Line]]]:
    """The number of each non-empty document, and its lines that are not blank."""
    result: list[tuple[int, list[Line]]] = []
    lines: list[Line] = []
    begun, number, end = False, 0, 0
    texts = data.decode("ascii").split("\n")
    for at, text in enumerate(texts, 1):
        if at <= end:  # in a literal block scalar
            continue
        line = _SEEN.get(text)
        if line is None:
            if text == _NEW:
                if lines:
                    result.append((number, lines))
                number += begun or bool(lines)
                begun, lines = True, []
                continue
            line = _line(text)
            if len(_SEEN) < _SEEN_AT_MOST and len(text) <= _LONGEST:
                _SEEN[text] = line
        if line is BLANK:
            continue
        if type(line[5]) is _Literal:
            end, value = _literal(line, texts, at)
            line = (*line[:5], value)
        lines.append(line)
    if lines:
        result.append((number, lines))
    return result


def _literal(header: Line, texts: list[str], start: int) -> tuple[int, str]:
    """The first line after a literal block scalar, and its text."""
    column, _, inner, key, _, style = header
    rows = range(start, len(texts))
    first = next((texts[row] for row in rows if texts[row].strip(" ")), "")
    indent = len(first) - len(first.lstrip(" "))
    if indent <= (column if key is None else inner):  # no text
        raise _Unsure
    last = start
    for row in rows:
        text = texts[row]
        if text[:indent].strip(" "):
            break
        if text[indent:]:
            if not text.isprintable() or (last == start and text.isspace()):
                raise _Unsure
            last = row + 1
    if texts[-1]:  # no line break at the end of the file
        raise _Unsure
    content = "\n".join(text[indent:] for text in texts[start:last])
    return last, content + ("\n" if style is _Literal.CLIP else "")


def _document(lines: list[Line]) -> dict[str, Any]:
    """The mapping in the lines of a document."""
    root: dict[str, Any] = {}
    box: Any = root  # the collection of the last line
    at, is_list = 0, False  # its column, and whether it is a list
    waiting: str | None = None  # the key there that has no value yet
    around: list[tuple[int, Any, bool]] = []  # its parents
    for column, dash, inner, key, has_value, value in lines:
        if column < at:
            waiting = None
            while column < at:  # ends: the outermost is at column 0
                at, box, is_list = around.pop()
        if column > at:
            if not waiting:  # a string over several lines, or an error
                raise _Unsure
            around.append((at, box, is_list))
            new: Any = [] if dash else {}
            box[waiting] = new
            box, at, is_list, waiting = new, column, dash, None
        elif dash is not is_list:
            if dash and waiting:  # a list may start in the column of its key
                around.append((at, box, is_list))
                box[waiting] = box = []
            elif is_list and around and around[-1][0] == at:
                _, box, _ = around.pop()
            else:
                raise _Unsure
            is_list, waiting = dash, None
        if dash:
            if key is None:
                box.append(_copied(value) if type(value) in _COLLECTIONS else value)
                continue
            around.append((at, box, True))
            new = {}
            box.append(new)
            box, at, is_list = new, inner, False
        if key in box:
            raise _Unsure
        box[key] = _copied(value) if type(value) in _COLLECTIONS else value
        waiting = None if has_value else key
        if len(around) > _DEEPEST:
            raise _Unsure
    return root


def _line(text: str) -> Line:
    head, _, rest = text.partition(": ")
    if (known := _KEYS_SEEN.get(head)) and rest and rest[0] not in " #":
        return *known, True, _value(rest)
    if _NOTHING.match(text):
        return BLANK
    parts = LINE.match(text)
    if parts is None or parts.start(4) > _LONGEST:
        raise _Unsure
    indent, dash, key, rest = parts.groups()
    column, is_item = len(indent), dash is not None
    if key is None:
        if not is_item:
            raise _Unsure
        return column, True, 0, None, True, _value(rest)
    if scalars.key(key) != key:
        raise _Unsure
    inner = column + len(dash or "")
    if len(_KEYS_SEEN) < _SEEN_AT_MOST:
        _KEYS_SEEN[text[: parts.end(3)]] = column, is_item, inner, key
    if _NOTHING.match(rest):
        return column, is_item, inner, key, False, None
    return column, is_item, inner, key, True, _value(rest)


@lru_cache(256)  # the lines of an object have the same name
def _value(text: str) -> Any:
    if text[:1] == "|":
        style = text.rstrip(" ")
        if style not in _LITERAL:
            raise _Unsure
        return _LITERAL[style]
    if text[:1] in ("[", "{"):
        value, end = _flow(text, 0)
        if _AFTER_FLOW.match(text, end) is None or ("{" in text and end > _LONGEST):
            raise _Unsure
        return value
    match = _SCALAR.match(text)
    if match is None:
        raise _Unsure
    return _scalar(match[1])


def extent(text: str) -> int | None:
    """The length of the value at the start of the text after a key or a dash; None without one."""
    if text[:1] in ("[", "{"):
        return _flow(text, 0)[1]
    match = _SCALAR.match(text)
    return match.end(1) if match else None


def _flow(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    """The flow collection that begins at a position, and its end."""
    close = "]" if text[at] == "[" else "}"
    result: Any = [] if close == "]" else {}
    token = _TOKEN.match(text, at + 1)
    if token is not None and token[1] == close:
        return result, token.end()
    while token is not None and depth < _DEEPEST:
        key = None
        if close == "}":
            key = token[2]
            if key is None or key in result or scalars.key(key) != key:
                break
            token = _TOKEN.match(text, token.end())
            if token is None:
                break
        if token[3] is not None:
            value, at = _scalar(token[3]), token.end()
        elif token[1] in ("[", "{"):
            value, at = _flow(text, token.end() - 1, depth + 1)
        else:
            break
        if key is None:
            result.append(value)
        else:
            result[key] = value
        token = _TOKEN.match(text, at)
        if token is not None and token[1] == close:
            return result, token.end()
        if token is None or token[1] != ",":
            break
        token = _TOKEN.match(text, token.end())
    raise _Unsure


def _copied(value: Any) -> Any:
    """A copy of a flow collection: equal lines share the value."""
    if type(value) is list:
        return [_copied(one) if type(one) in _COLLECTIONS else one for one in value]
    return {k: _copied(one) if type(one) in _COLLECTIONS else one for k, one in value.items()}


def _scalar(word: str) -> scalars.Scalar:
    if word[0] in "\"'":
        return word[1:-1]
    value = scalars.read(word)
    if scalars.ambiguous(word) or (isinstance(value, float) and not math.isfinite(value)):
        raise _Unsure
    return value
