"""Places of values in a file of the common syntax (`fast_path`), found in its text: a hundredth of
the time that libyaml needs to compose the nodes of the file.

In this syntax all keys or items of a block start in the same column, and their values are further
right. So a search for a line break, the indentation and the key finds the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final, NamedTuple

from gitops_ds.core.objects import Path
from gitops_ds.yaml import fast_path

Mark = tuple[int, int]  # line and column, from 0
Span = tuple[Mark, Mark]  # the start, and the end (exclusive)

_KEY: Final = re.compile(fast_path.KEY)
_SEPARATOR: Final = "\n---\n"
_CONTENT: Final = re.compile(r"\n( *)(?=[^ \n#])(- )?")
_FIRST_KEY: Final = re.compile(rf"- +(?={fast_path.KEY}:[ \n])")
_NO_VALUE: Final = re.compile(r" *(?:#.*)?$", re.MULTILINE)


class _DocumentText(NamedTuple):
    """A document in the text of its file: from the line break before it up to its end."""

    text: str
    root: _Entry
    end: int

    def row(self, line: int) -> int:
        """The number of the line after a line break, from 0. The first line break is before the
        file.
        """
        return self.text.count("\n", 0, line)


class _Block(NamedTuple):
    """A mapping, or a list: the line break before it, and the column of its keys or dashes."""

    line: int
    column: int
    is_list: bool


@dataclass(slots=True)
class _Entry:
    """A key of a mapping, or an item of a list (None): the line break before it, its column, and
    the entries below it that were found: the findings of an object have most of a path in common.
    """

    line: int
    column: int
    key: str | None
    found: dict[str | int, _Entry] = field(default_factory=dict)


def span(data: bytes, document: int, path: Path, *, key: bool) -> Span | None:
    """The span of the value at `path`, or of its key; of the nearest parent's key if the path does
    not exist. None if the file or the value has other syntax, or no such document exists.

    libyaml's marks: a block ends with its last scalar (`nodes.last`).
    """
    within = _documents(data).get(document)
    try:
        return within and _span(within, path, of_key=key)
    except _OtherSyntax:
        return None


class _OtherSyntax(Exception):
    """The place is in a flow mapping, in a list with another flow collection, or at the end of a
    literal block scalar.
    """


@lru_cache(maxsize=4)
def _documents(data: bytes) -> dict[int, _DocumentText]:
    """The non-empty documents, by number. Cached, because a file often has several findings."""
    if not fast_path.reads(data):
        return {}
    text = f"\n{data.decode('ascii')}\n"
    documents: dict[int, _DocumentText] = {}
    start = number = 0
    while start >= 0:
        end = text.find(_SEPARATOR, start)
        one = _DocumentText(text, _Entry(start, -1, ""), end if end >= 0 else len(text))
        has_content = _CONTENT.search(text, start, one.end) is not None
        if has_content:
            documents[number] = one
        if has_content or start:  # an empty part before the first `---` is not a document
            number += 1
        start = end + len(_SEPARATOR) - 1 if end >= 0 else -1
    return documents


def _span(within: _DocumentText, path: Path, *, of_key: bool) -> Span:
    at = within.root
    for step in path:
        child = at.found.get(step)
        if child is None:
            block = _block(within, at)
            child = block and _child(within, block, step)
            if child is None:
                item = None if block else _flow_item(within, at, step)
                return item or _key(within, at)
            at.found[step] = child
        at = child
    return _key(within, at) if of_key else _value(within, at)


def _block(within: _DocumentText, at: _Entry) -> _Block | None:
    """The value of an entry; None if it is a scalar or a flow collection."""
    text, _, end = within
    line, column, key = at.line, at.column, at.key
    if key is None:
        first = _FIRST_KEY.match(text, line + 1 + column)
        return _Block(line, first.end() - line - 1, is_list=False) if first else None
    if key:
        value = line + 1 + column + len(key) + 1
        if not _NO_VALUE.match(text, value):
            return None
        line = text.find("\n", value, end)
    below = _CONTENT.search(text, line, end) if line >= 0 else None
    if below is None:
        return None
    indent, is_list = len(below[1]), below[2] is not None
    # the items of a list may be in the column of its key
    is_below = indent > column or (indent == column and is_list)
    return _Block(below.start(), indent, is_list) if is_below else None


def _child(within: _DocumentText, block: _Block, step: str | int) -> _Entry | None:
    if block.is_list:
        return _item(within, block, step) if isinstance(step, int) and step >= 0 else None
    return _named(within, block, step) if isinstance(step, str) and _KEY.fullmatch(step) else None


def _item(within: _DocumentText, block: _Block, number: int) -> _Entry | None:
    dash = f"\n{' ' * block.column}- "
    line = within.text.find(dash, block.line, within.end)
    while number and line >= 0:
        line = within.text.find(dash, line + 1, within.end)
        number -= 1
    return _Entry(line, block.column, None) if line >= 0 and _holds(within, block, line) else None


def _named(within: _DocumentText, block: _Block, name: str) -> _Entry | None:
    text, column = within.text, block.column
    if text.startswith((f"{name}: ", f"{name}:\n"), block.line + 1 + column):  # also after a dash
        return _Entry(block.line, column, name)
    line = text.find(f"\n{' ' * column}{name}:", block.line, within.end)
    return _Entry(line, column, name) if line >= 0 and _holds(within, block, line) else None


def _holds(within: _DocumentText, block: _Block, line: int) -> bool:
    """Whether the line after this later line break is in the block."""
    return _end(within, block, line) == line


def _end(within: _DocumentText, block: _Block, limit: int) -> int:
    """The line break before the first line after the block; `limit` if it is not before that."""
    line, column, is_list = block
    if column == 0 and not is_list:
        return limit
    match = _outside(column, is_list).search(within.text, line + 1, limit)
    return match.start() if match else limit


@cache
def _outside(column: int, is_list: bool) -> re.Pattern[str]:
    """Matches a line with less indentation; for a list, whose parent may have keys in its column,
    also a line without a dash. Comments may have any indentation.
    """
    inside = rf" {{{column}}}[ -]" if is_list else rf" {{{column}}}"
    return re.compile(rf"\n(?!{inside})(?= *[^ \n#])")


@cache
def _items(column: int) -> re.Pattern[str]:
    return re.compile(rf"\n {{{column}}}- ")


@cache
def _keys(column: int) -> re.Pattern[str]:
    return re.compile(rf"\n {{{column}}}(?={fast_path.KEY}:)")


def _last(within: _DocumentText, block: _Block) -> _Entry:
    """The entry of the last scalar or flow collection in a block."""
    line, column, is_list = block
    pattern = _items(column) if is_list else _keys(column)
    for match in pattern.finditer(within.text, line, _end(within, block, within.end)):
        line = match.start()
    key = None if is_list else _KEY.match(within.text, line + 1 + column)
    at = _Entry(line, column, key[0] if key else None)
    below = _block(within, at)
    return _last(within, below) if below else at


def _key(within: _DocumentText, at: _Entry) -> Span:
    """The span of the key of an entry; for an item and for the document, of the value."""
    if not at.key:
        return _value(within, at)
    row = within.row(at.line)
    return (row, at.column), (row, at.column + len(at.key))


def _value(within: _DocumentText, at: _Entry) -> Span:
    block = _block(within, at)
    if block is None:
        return _scalar(within, at)
    return (within.row(block.line), block.column), _scalar(within, _last(within, block))[1]


def _scalar(within: _DocumentText, at: _Entry) -> Span:
    """The span of a value in the line of its entry; an empty value is after the colon."""
    row, (rest, start) = within.row(at.line), _rest(within, at)
    if rest.startswith("|"):
        raise _OtherSyntax
    length = fast_path.extent(rest)
    if length is None:
        start, length = at.column + len(at.key or "") + 1, 0
    return (row, start), (row, start + length)


def _rest(within: _DocumentText, at: _Entry) -> tuple[str, int]:
    """The text after the key or the dash, and its column."""
    line = within.text[at.line + 1 : within.text.index("\n", at.line + 1)]
    rest = line[at.column + len(at.key or "") + 1 :].lstrip(" ")
    return rest, len(line) - len(rest)


def _flow_item(within: _DocumentText, at: _Entry, step: str | int) -> Span | None:
    """The item of a flow list."""
    rest, start = _rest(within, at)
    if rest.startswith("{"):
        raise _OtherSyntax
    if not rest.startswith("[") or not isinstance(step, int):
        return None
    if "[" in rest[1:] or "{" in rest:
        raise _OtherSyntax
    items = list(fast_path.ITEMS.finditer(rest, 1, fast_path.extent(rest) or 0))
    if not 0 <= step < len(items):
        return None
    row = within.row(at.line)
    return (row, start + items[step].start()), (row, start + items[step].end())
