"""Places of values in a file of the common syntax, found in the lines that `fast_path` reads: a
tenth of the time that libyaml needs to compose the nodes of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gitops_ds.model.objects import Path
from gitops_ds.yaml import fast_path
from gitops_ds.yaml.fast_path import Line

Mark = tuple[int, int]  # line and column, from 0
Span = tuple[Mark, Mark]  # the start, and the end (exclusive)


class _Block(NamedTuple):
    """A mapping, or a list: its first line, and the column of its keys or dashes."""

    row: int
    column: int
    is_list: bool


class _Entry(NamedTuple):
    """A key of a mapping, or an item of a list (None)."""

    row: int
    column: int
    key: str | None


_ROOT: Final = _Entry(-1, -1, "")


def span(data: bytes, document: int, path: Path, *, key: bool) -> Span | None:
    """The span of the value at `path`, or of its key; of the nearest parent's key if the path does
    not exist. None if the file or the value has other syntax, or no such document exists.

    libyaml's marks: a block ends with its last scalar (`nodes.last`).
    """
    for number, row, text in _documents(data):
        if number == document:
            try:
                (start, column), (end, last) = _span(text, path, of_key=key)
            except _OtherSyntax:
                return None
            return (row + start, column), (row + end, last)
    return None


class _OtherSyntax(Exception):
    """The place is in a flow mapping, or the end of a text in literal style."""


class _Text(NamedTuple):
    """A document, parsed and as it is written."""

    lines: list[Line]
    written: list[bytes]


@lru_cache(maxsize=4)
def _documents(data: bytes) -> list[tuple[int, int, _Text]]:
    """The number of each document, its first line, its text. Cached, because findings come in
    groups.
    """
    written = data.split(b"\n")
    return [
        (one.number, one.row, _Text(one.lines, written[one.row :]))
        for one in fast_path.documents(data)
    ]


def _span(text: _Text, path: Path, *, of_key: bool) -> Span:
    at = _ROOT
    for step in path:
        block = _block(text.lines, at)
        child = block and _child(text.lines, block, step)
        if child is None:
            item = None if block else _flow_item(text, at, step)
            return item or _key(text, at)
        at = child
    return _key(text, at) if of_key else _value(text, at)


def _block(lines: list[Line], at: _Entry) -> _Block | None:
    """The value of an entry; None if it is a scalar or a flow collection."""
    row, column, name = at
    if name is None:
        _, _, inner, key, _, _ = lines[row]
        return None if key is None else _Block(row, inner, is_list=False)
    for below in range(row + 1, len(lines)):
        indent, is_item, _, _, _, _ = lines[below]
        if indent >= 0:  # not blank
            # the items of a list may be in the column of its key
            if indent > column or (indent == column and is_item):
                return _Block(below, indent, is_item)
            break
    return None


def _child(lines: list[Line], block: _Block, step: str | int) -> _Entry | None:
    number = -1
    for row, key in _rows(lines, block):
        number += 1
        if step == (number if block.is_list else key):
            return _Entry(row, block.column, key)
    return None


def _rows(lines: list[Line], block: _Block) -> Iterator[tuple[int, str | None]]:
    """The lines of the keys or the items of a block, with the keys."""
    first, column, is_list = block
    for row in range(first, len(lines)):
        indent, is_item, _, key, _, _ = lines[row]
        if row == first:
            yield row, None if is_list else key
        elif 0 <= indent < column or (indent == column and is_list and not is_item):
            return
        elif indent == column and is_item is is_list:
            yield row, None if is_list else key


def _end(lines: list[Line], block: _Block) -> _Entry:
    """The entry of the last scalar or flow collection in a block."""
    *_, (row, key) = _rows(lines, block)
    at = _Entry(row, block.column, key)
    below = _block(lines, at)
    return _end(lines, below) if below else at


def _key(text: _Text, at: _Entry) -> Span:
    """Of an item and of the document the value."""
    row, column, key = at
    if not key:
        return _value(text, at)
    return (row, column), (row, column + len(key))


def _value(text: _Text, at: _Entry) -> Span:
    block = _block(text.lines, at)
    if block is None:
        return _scalar(text, at)
    return (block.row, block.column), _scalar(text, _end(text.lines, block))[1]


def _scalar(text: _Text, at: _Entry) -> Span:
    """Of the value in the line of an entry; an empty value is after the colon."""
    row, column, key = at
    rest, start = _rest(text, at)
    if rest.startswith("|"):
        raise _OtherSyntax
    match = fast_path.VALUE.match(rest)
    if match is None:
        end = column + len(key or "") + 1
        return (row, end), (row, end)
    return (row, start + match.start(1)), (row, start + match.end(1))


def _rest(text: _Text, at: _Entry) -> tuple[str, int]:
    """The text after the key or the dash, and its column."""
    parts = fast_path.LINE.match(text.written[at.row].decode("ascii"))
    return (parts[4], parts.start(4)) if parts else ("", 0)


def _flow_item(text: _Text, at: _Entry, step: str | int) -> Span | None:
    """The item of a flow list."""
    rest, start = _rest(text, at)
    if rest.startswith("{"):
        raise _OtherSyntax
    match = fast_path.VALUE.match(rest)
    if match is None or not match[1].startswith("[") or not isinstance(step, int):
        return None
    items = list(fast_path.ITEMS.finditer(match[1]))
    if not 0 <= step < len(items):
        return None
    start += match.start(1)
    return (at.row, start + items[step].start()), (at.row, start + items[step].end())
