"""Formats new YAML like the surrounding file: its indentation, and the quotes of the old value."""

from __future__ import annotations

import io
import json
import re
import textwrap
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString

from gitops_ds.yaml import scalars

# Certainly a plain scalar, in block and flow collections.
_PLAIN: Final = re.compile(r"[\w./@-](?:[\w ./@+=%-]|:(?=[\w/]))*(?<! )")


def in_place_of(old: str, value: Any) -> str | None:
    """The scalar in the quotes of the old text; None if the old one can't be replaced (`|`, an
    alias).
    """
    if not old or old[0] in "|>*&!" or (isinstance(value, str) and "\n" in value):
        return None
    if not isinstance(value, str):
        return json.dumps(value)
    if old[0] == "'":
        return "'" + value.replace("'", "''") + "'"
    plain = _is_plain(value) and _PLAIN.fullmatch(value)
    return value if plain and old[0] != '"' else json.dumps(value, ensure_ascii=False)


def flow(value: Any, *, as_json: bool = False) -> str:
    """The value on one line in flow style; with `as_json`, as valid JSON."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{flow(key, as_json=as_json)}: {flow(item, as_json=as_json)}"
                for key, item in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(flow(item, as_json=as_json) for item in value) + "]"
    if as_json or "\n" in str(value):
        return json.dumps(value, ensure_ascii=False)
    return in_place_of("x", value) or json.dumps(value)


def block(value: Any, like: str, indent: int) -> str:
    """A mapping or a list in block style, indented by that many spaces, otherwise like the
    surrounding text.
    """
    out = io.BytesIO()
    writer(like, explicit_start=False).dump(quoted(value), out)
    lines = textwrap.dedent(out.getvalue().decode()).splitlines(keepends=True)
    return "".join(" " * indent + line if line.strip() else line for line in lines)


def writer(like: str, *, explicit_start: bool) -> YAML:
    """A round-trip writer in the style of a text."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.explicit_start = explicit_start
    mapping, sequence, offset = indents(like)
    yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
    return yaml


def indents(text: str) -> tuple[int, int, int]:
    """The indentation of a text: of mappings, of the content of list items, and of their dashes,
    each from the parent key.
    """
    nested = re.search(r"^( *)[\w./-]+:\r?\n\1( +)[\w./-]+:", text, re.MULTILINE)
    mapping = len(nested[2]) if nested else 2
    listed = re.search(r"^( *)[\w./-]+:\r?\n(?:\1#.*\n)*\1( *)-( +)", text, re.MULTILINE)
    offset = len(listed[2]) if listed else 0
    return mapping, offset + 2, offset


def quoted(value: Any, old: Any = None) -> Any:
    """The value for the round trip, in the quotes of the old one; an ambiguous string is quoted."""
    if isinstance(value, dict):
        return {quoted(key): quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [quoted(item) for item in value]
    if not isinstance(value, str):
        return value
    if isinstance(old, ScalarString) and "\n" not in value:
        return type(old)(value)
    return value if _is_plain(value) else DoubleQuotedScalarString(value)


def _is_plain(text: str) -> bool:
    return scalars.read(text) == text and not scalars.ambiguous(text)
