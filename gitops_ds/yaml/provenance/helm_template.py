"""The source of each value of a rendered object: a line of the chart's template, or a value of the
chart.

A template is not YAML, so its lines are parsed by keys and indentation as far as possible, and
matched with the rendered object. If the match is ambiguous, the source is that of the nearest
parent. A value of the chart is a source only if the template prints it unchanged and the output
equals it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gitops_ds.core.objects import MISSING, Path, value_at
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.core.sources.source_tree import Places

_KEY = re.compile(r"""("[^"]+"|'[^']+'|[\w./-][^:#{}"']*?)\s*:(?:\s+(.*)|$)""")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[+-]?(?:\s+#.*)?")
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
_OPENS = re.compile(r"(if|range|with|define|block)\b")
_WITH = re.compile(r"with\s+\$?\.Values\.([\w.]+)")
_VALUE = re.compile(r"(?<![\w)])\$?\.Values\.(\w+(?:\.\w+)*)")
_INDENTED = re.compile(r"\bn?indent\s+(\d+)")
# Longer lines are truncated: the patterns backtrack, and no key has that much indentation. A key
# with more occurrences, as in branches, is ambiguous.
_LONGEST_LINE = 1000
_MOST_BRANCHES = 10
_DOT = re.compile(r"(?:tpl\s*\(\s*)?(?:toYaml\s+)?\.(?:\s*\||$|\s*\))")


class ChartValues(msgspec.Struct, frozen=True):
    """Values of a chart at `path` of a file."""

    value: Any
    file: str
    path: Path = ()


@dataclass(slots=True)
class _TemplateLine:
    """A line: a key with its text, a list item (no key), or only an action; and its child lines."""

    line: int
    indent: int
    key: str | None = None
    text: str = ""
    within: str | None = None  # the value of the dot by the surrounding `with`
    children: list[_TemplateLine] = field(default_factory=list)
    actions: list[_TemplateLine] = field(default_factory=list)
    _by_key: dict[str | None, list[_TemplateLine]] | None = None
    _by_name: dict[str, list[_TemplateLine]] | None = None

    def keyed(self, key: str | None) -> list[_TemplateLine]:
        """The children with that key; None: the items of a list."""
        if self._by_key is None:
            self._by_key = {}
            for child in self.children:
                self._by_key.setdefault(child.key, []).append(child)
        return self._by_key.get(key, [])

    def named(self, name: str) -> list[_TemplateLine]:
        """The list items with that `name`."""
        if self._by_name is None:
            self._by_name = {}
            for item in self.keyed(None):
                for key in item.keyed("name"):
                    self._by_name.setdefault(key.text.strip("\"'"), []).append(item)
        return self._by_name.get(name, [])

    def reads(self) -> list[str]:
        """The values in its text."""
        names = _VALUE.findall(self.text)
        dotted = [a for a in _ACTION.findall(self.text) if _DOT.match(a)]
        return [*names, *([self.within] if dotted and self.within else [])]

    @property
    def prints_one(self) -> bool:
        """Whether its text is a single action, possibly in quotes."""
        return _ACTION.sub("", self.text, count=1).strip("\"' ") == ""


def places(
    template: str, file: str, objects: Sequence[Any], layers: Sequence[ChartValues]
) -> list[Places]:
    """For each object of the template, in order, the pointers of its values, the effective one
    first.

    `layers` are the values for the template, by precedence, the highest first.
    """
    outlines = list(_outlines(template))
    by_kind: dict[str, list[_TemplateLine]] = {}
    for outline in outlines:
        for kind in outline.keyed("kind"):
            by_kind.setdefault(kind.text, []).append(outline)
    all_places = []
    for number, each in enumerate(objects):
        same = by_kind.get(str(each.get("kind")), []) if isinstance(each, Mapping) else []
        # The document of the template, by its kind or else its number; the whole file if ambiguous.
        only = (
            outlines
            if len(outlines) == 1
            else same
            if len(same) == 1
            else outlines[number:]
            if len(objects) == len(outlines)
            else []
        )
        all_places.append(_Laid(file, layers).over(each, only[0] if only else _TemplateLine(1, -1)))
    return all_places


def _outlines(template: str) -> Iterator[_TemplateLine]:
    """The documents of a template, each as a tree of its lines, except documents without keys."""
    reader = _Reader()
    for number, line in enumerate(template.split("\n"), 1):
        if line.startswith("---"):
            yield from reader.ended()
            reader = _Reader(reader.blocks)
        else:
            reader.take(number, line[:_LONGEST_LINE].rstrip())
    yield from reader.ended()


class _Reader:
    """Parses the lines of one document."""

    def __init__(self, blocks: list[str | None] | None = None) -> None:
        self.blocks = blocks or []
        self._root = _TemplateLine(0, -1)
        self._open = [self._root]
        self._comment = False
        self._text_below: int | None = None

    def ended(self) -> Iterator[_TemplateLine]:
        """The document, if it has a key."""
        if keys := [child for child in self._root.children if child.key]:
            self._root.line = keys[0].line
            yield self._root

    def take(self, number: int, line: str) -> None:
        """Adds the next line."""
        text = line.lstrip()
        indent = len(line) - len(text)
        if self._comment or re.match(r"\{\{-?\s*/\*", text):
            self._comment = "*/" not in text
            return
        if not text or text.startswith("#") or self._is_text(indent, text):
            return
        if text.startswith("{{") and not _KEY.match(text):
            self._action(number, indent, text)
            return
        while text == "-" or text.startswith("- "):
            rest = text[1:].lstrip()
            self._add(_TemplateLine(number, indent, text=rest), same=True)
            indent, text = indent + len(text) - len(rest), rest
        if match := _KEY.match(text):
            value = (match[2] or "").strip()
            self._add(
                _TemplateLine(number, indent, match[1].strip("\"'"), value, within=self._within)
            )
            self._text_below = indent if _BLOCK.fullmatch(value) else None

    def _is_text(self, indent: int, text: str) -> bool:
        """Whether the line belongs to a block scalar."""
        if (
            self._text_below is not None
            and indent <= self._text_below
            and not text.startswith("{{")
        ):
            self._text_below = None
        return self._text_below is not None

    @property
    def _within(self) -> str | None:
        return self.blocks[-1] if self.blocks else None

    def _action(self, number: int, indent: int, text: str) -> None:
        actions = _ACTION.findall(text)
        for action in actions:
            if _OPENS.match(action):
                scope = _WITH.fullmatch(action)
                self.blocks.append(
                    scope[1] if scope else self._within if action.startswith("if") else None
                )
            elif action == "end" and self.blocks:
                self.blocks.pop()
            elif action.startswith("else") and self.blocks:
                self.blocks[-1] = None
        if len(actions) == 1 and not re.match(
            r"(if|range|with|define|block|end|else|\$)\b|/\*|\$", actions[0]
        ):
            deep = _INDENTED.search(text)
            self._add(
                _TemplateLine(
                    number, int(deep[1]) if deep else indent, text=text, within=self._within
                ),
                action=True,
            )

    def _add(self, node: _TemplateLine, *, same: bool = False, action: bool = False) -> None:
        """Adds the line below the last line with less indentation; a list may have the indentation
        of its key (`same`).
        """
        while len(self._open) > 1 and not (
            self._open[-1].indent < node.indent
            or (
                same
                and self._open[-1].indent == node.indent
                and self._open[-1].key
                and not self._open[-1].text
            )
        ):
            self._open.pop()
        parent = self._open[-1]
        (parent.actions if action else parent.children).append(node)
        self._open.append(node)


class _Laid:
    """Matches an object with its outline."""

    def __init__(self, file: str, layers: Sequence[ChartValues]) -> None:
        self._file, self._layers = file, layers
        self._found: dict[Path, tuple[Pointer, ...]] = {}

    def over(self, value: Any, outline: _TemplateLine) -> Places:
        self._lay(value, outline, ())
        return self._found

    def _lay(self, value: Any, node: _TemplateLine, path: Path) -> None:
        if (
            not node.text
            and not node.children
            and len(node.actions) == 1
            and len(node.actions[0].reads()) == 1
        ):
            node = node.actions[0]
        here = Pointer(self._file, 0, (), max(node.line, 1))
        reads = node.reads()
        if path and len(reads) == 1 and node.prints_one:
            self._values(value, tuple(reads[0].split(".")), path, here)
            return
        self._found[path] = (
            here,
            *(p for r in reads for p in self._named(tuple(r.split(".")))[:1]),
        )
        if isinstance(value, Mapping):
            self._mapping(value, node, path)
        elif isinstance(value, list):
            self._list(value, node, path)

    def _mapping(self, value: Mapping[str, Any], node: _TemplateLine, path: Path) -> None:
        action = node.actions[0] if len(node.actions) == 1 else None
        for key, item in value.items():
            named = node.keyed(key)
            hits = (
                named
                if len(named) < 2
                else [branch for branch in named[:_MOST_BRANCHES] if branch.text == str(item)]
            )
            if len(hits) == 1:
                self._lay(item, hits[0], (*path, key))
            elif not named and action is not None:
                reads = action.reads()
                here = Pointer(self._file, 0, (), action.line)
                self._found[*path, key] = (here,)
                if len(reads) == 1:
                    self._values(item, (*reads[0].split("."), key), (*path, key), here)

    def _list(self, value: list[Any], node: _TemplateLine, path: Path) -> None:
        items = node.keyed(None)
        whole = len(items) == len(value) and not node.actions
        for index, item in enumerate(value):
            name = item.get("name") if isinstance(item, Mapping) else None
            same = node.named(str(name)) if name is not None else []
            if len(same) == 1:
                self._lay(item, same[0], (*path, index))
            elif whole or len(items) == 1:
                self._lay(item, items[index if whole else 0], (*path, index))

    def _values(self, value: Any, way: Path, path: Path, here: Pointer) -> None:
        """The sources of a printed value at `way` of the values, for each scalar; the line of the
        template where the output differs.
        """
        if isinstance(value, Mapping | list):
            self._found[path] = (*self._named(way)[:1], here)
            inner = value.items() if isinstance(value, Mapping) else enumerate(value)
            for step, item in inner:
                self._values(item, (*way, step), (*path, step), here)
            return
        certain = [
            pointer
            for pointer, value_there in self._found_at(way)[:1]
            if _shown(value_there) == _shown(value)
        ]
        self._found[path] = (*certain, here)

    def _named(self, way: Path) -> list[Pointer]:
        return [pointer for pointer, _ in self._found_at(way)]

    def _found_at(self, way: Path) -> list[tuple[Pointer, Any]]:
        """The pointers to the values at `way`, the effective one first."""
        values = ((layer, value_at(layer.value, way)) for layer in self._layers)
        return [
            (Pointer(layer.file, 0, (*layer.path, *way)), value)
            for layer, value in values
            if value is not MISSING
        ]


def _shown(value: Any) -> str:
    """The value as a template prints it."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
