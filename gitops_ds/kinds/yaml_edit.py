"""Changes values inside a YAML file and leaves the rest as its author wrote it: comments, quotes, order, indentation.

What comes or goes is written by ruamel.yaml's round-trip mode, the only one that keeps comments: https://yaml.dev/doc/ruamel.yaml/
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString

from gitops_ds.kinds import documents, scalars
from gitops_ds.model.objects import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """A value to set at a path of one document (counted from 0); None takes the key or the list's entry away."""

    document: int
    path: Path
    value: Any


def apply(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file after the edits. Raises ValueError for a file that isn't YAML, and for a path whose parent isn't there.

    A scalar that takes the place of another is written over it, so that not a byte around it moves; entries that come or go are
    the round trip's work.
    """
    rest: list[Edit] = []
    texts: list[tuple[int, int, bytes]] = []
    for edit in edits:
        spot = _scalar_at(data, edit)
        if spot is None:
            rest.append(edit)
        else:
            texts.append(spot)
    for start, end, text in sorted(texts, reverse=True):
        data = data[:start] + text + data[end:]
    return _round_trip(data, rest) if rest else data


def _scalar_at(data: bytes, edit: Edit) -> tuple[int, int, bytes] | None:
    """First byte, byte past the last, and the new text of a scalar on one line; None for anything else."""
    if edit.value is None or isinstance(edit.value, dict | list):
        return None
    start, end = documents.span("", data, edit.document, edit.path)
    parsed = next((one.value for one in documents.read("", data).documents if one.index == edit.document), None)
    if not _is_scalar(parsed, edit.path) or not start.line or start.line != end.line:
        return None
    lines = data.splitlines(keepends=True)
    before = sum(map(len, lines[: start.line - 1]))
    line = lines[start.line - 1].decode("utf-8", "replace")
    first, last = (before + len(line[: place.column - 1].encode()) for place in (start, end))
    old = data[first:last].decode("utf-8", "replace")
    text = _in_style(edit.value, old)
    return None if text is None else (first, last, text.encode())


def _is_scalar(value: Any, path: Path) -> bool:
    try:
        for step in path:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return False
    return not isinstance(value, dict | list)


def _in_style(value: Any, old: str) -> str | None:
    """The value in the quotes of the old text; None where the old one is of a style that can't be written over (`|`, an alias)."""
    if not old or old[0] in "|>*&!" or (isinstance(value, str) and "\n" in value):
        return None
    if not isinstance(value, str):
        return json.dumps(value)
    if old[0] == "'":
        return "'" + value.replace("'", "''") + "'"
    plain = scalars.read(value) == value and not scalars.ambiguous(value) and _PLAIN.fullmatch(value)
    return value if plain and old[0] != '"' else json.dumps(value, ensure_ascii=False)


# Surely a plain scalar, in a block and in a flow collection.
_PLAIN = re.compile(r"[\w./@-](?:[\w ./@+=-]|:(?=[\w/]))*(?<! )")


def _round_trip(data: bytes, edits: Sequence[Edit]) -> bytes:
    yaml = _yaml(data)
    try:
        loaded = list(yaml.load_all(data.replace(b"\r\n", b"\n")))
    except YAMLError as error:
        raise ValueError(str(error)) from error
    # Entries of lists go from the last, so that the places of the others stay.
    for edit in sorted(edits, key=lambda one: [str(step).zfill(9) for step in one.path], reverse=True):
        _set(loaded[edit.document], edit)
    out = io.BytesIO()
    yaml.dump_all(loaded, out)
    text = out.getvalue()
    return text.replace(b"\n", b"\r\n") if b"\r\n" in data else text


def _yaml(data: bytes) -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.explicit_start = data.lstrip().startswith(b"---")
    mapping, sequence, offset = _indents(data.decode("utf-8", "replace"))
    yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
    return yaml


def _indents(text: str) -> tuple[int, int, int]:
    """How the author indents: mappings, the text of list entries, and their dash, each from the parent key."""
    nested = re.search(r"^( *)[\w./-]+:\n\1( +)[\w./-]+:", text, re.MULTILINE)
    mapping = len(nested[2]) if nested else 2
    listed = re.search(r"^( *)[\w./-]+:\n(?:\1#.*\n)*\1( *)-( +)", text, re.MULTILINE)
    offset = len(listed[2]) if listed else 0
    return mapping, offset + 2, offset


def _set(root: Any, edit: Edit) -> None:
    *way, last = edit.path
    parent = root
    try:
        for step in way:
            parent = parent[step]
        if edit.value is None:
            del parent[last]
        else:
            parent[last] = _styled(edit.value, parent[last] if _has(parent, last) else None)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"there is no place for {'.'.join(map(str, edit.path))}") from error


def _has(parent: Any, key: Any) -> bool:
    return (isinstance(parent, dict) and key in parent) or (isinstance(parent, list) and isinstance(key, int) and key < len(parent))


def _styled(value: Any, old: Any) -> Any:
    """The value in the quotes of the old one; a text that would be read as something else gets quotes."""
    if isinstance(value, str):
        if isinstance(old, ScalarString) and "\n" not in value:
            return type(old)(value)
        return value if scalars.read(value) == value and not scalars.ambiguous(value) else DoubleQuotedScalarString(value)
    return value
