"""An edit of a YAML file as splices of its text, which change only the lines of the edited value.

Positions are libyaml's marks. For unsupported syntax the result is None, or a text with another
value: callers must parse the result (`edit` does).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, Final

import msgspec
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gitops_ds.yaml import nodes, style

# libyaml's line breaks.
_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_REST: Final = re.compile("[ \t]*(?:#[^\n\r\x85\u2028\u2029]*)?(?:\r\n|[\n\r\x85\u2028\u2029]|\\Z)")
_COLON: Final = re.compile("[ \t]*:")
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*\r?\n)+\Z")
_DASH: Final = re.compile(r" *- +\Z")
_DASHES: Final = re.compile(r" *(?:- +)+\Z")


class Splice(msgspec.Struct, frozen=True):
    """The replacement of the characters from `start` to `end`. Of two at one position, the one of
    greater depth comes first.
    """

    start: int
    end: int
    text: str
    depth: int = 0


def joined(text: str, splices: list[Splice]) -> str:
    """The text after the splices, which must not overlap."""
    for splice in sorted(splices, key=lambda one: (-one.start, one.start - one.end, one.depth)):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text


class Text:
    """A text with its nodes, and the splices of its edits."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(line_break.end() for line_break in _BREAK.finditer(text))]
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def replaced(self, node: Node, value: Any) -> list[Splice] | None:
        """Replaces a scalar on one line."""
        if not isinstance(node, ScalarNode) or node.start_mark.line != node.end_mark.line:
            return None
        start, end = self._span(node)
        new = style.in_place_of(self.text[start:end], value)
        return None if new is None else [Splice(start, end, new)]

    def rewritten(self, node: Node, value: Any) -> list[Splice]:
        """Replaces a value with a flow collection."""
        return [
            Splice(
                self._at(node.start_mark), self._at(nodes.last(node).end_mark), style.flow(value)
            )
        ]

    def added(
        self, parent: tuple[Node | None, Node], key: str | None, value: Any, depth: int
    ) -> list[Splice] | None:
        """Adds a key with its value to a mapping, or (without a key) an item to the end of a list.

        `parent` is the collection, with the node of its key before it.
        """
        name, node = parent
        made = [value] if key is None else {key: value}
        if not isinstance(node, MappingNode | SequenceNode):
            return (
                self._under(name, node, made)
                if name is not None and key is not None and not node.value
                else None
            )
        if node.flow_style:
            return self._into_flow(node, key, value)
        last = self._neighbour(node, value)[1] if isinstance(node, MappingNode) else node.value[-1]
        where = self._past(last)
        if where is None:
            return None
        return [self._lines(where, style.block(made, self.text, node.start_mark.column), depth)]

    def removed(self, parent: tuple[Node | None, Node], index: int) -> list[Splice] | None:
        """Removes an entry of a collection; `parent` is the collection, with the node of its key
        before it.
        """
        name, node = parent
        if not isinstance(node, MappingNode | SequenceNode):
            return None
        if node.flow_style:
            return self._out_of_flow(node, index)
        if len(node.value) == 1:
            return self._emptied(name, node)
        if isinstance(node, SequenceNode):
            start = self._at(node.value[index].start_mark)
            end = self._past(node.value[index])
            first = self._line(start)
            return (
                [Splice(first, end, "")]
                if end is not None and _DASH.fullmatch(self.text[first:start])
                else None
            )
        key, value = node.value[index]
        start, end = self._at(key.start_mark), self._past(value)
        first = self._line(start)
        if end is None:
            return None
        if not self.text[first:start].strip(" "):
            return [Splice(first, end, "")]
        # The first key of a list item is after the dash: the next one moves there.
        if index == 0 and _DASHES.fullmatch(self.text[first:start]):
            following = self._at(node.value[1][0].start_mark)
            return [Splice(start, following, "")] if self._line(following) == end else None
        return None

    def _at(self, mark: Any) -> int:
        start: int = self._starts[min(mark.line, len(self._starts) - 1)]
        return start + int(mark.column)

    def _span(self, node: Node) -> tuple[int, int]:
        return self._at(node.start_mark), self._at(node.end_mark)

    def _line(self, index: int) -> int:
        """The start of the line of a character."""
        return self._starts[bisect_right(self._starts, index) - 1]

    def _past(self, node: Node) -> int | None:
        """The start of the line after a node; None if other content follows the node."""
        last = nodes.last(node)
        end = self._at(last.end_mark)
        if last.end_mark.line > last.start_mark.line and last.end_mark.column == 0:
            # A block scalar ends after its last line and the blank lines below.
            blank = _BLANK_LINES.search(self.text, 0, end)
            return (
                self._starts[bisect_right(self._starts, blank.start())]
                if blank and blank.start()
                else end
            )
        rest = _REST.match(self.text, end)
        return rest.end() if rest else None

    def _lines(self, where: int, text: str, depth: int = 0) -> Splice:
        text = text.replace("\n", self._newline)
        if where == len(self.text) and not self.text.endswith("\n"):
            text = self._newline + text.removesuffix(self._newline)
        return Splice(where, where, text, depth)

    def _neighbour(self, node: MappingNode, value: Any) -> Any:
        """The entry before a new one: the last short entry for a short one, else the last."""
        short = [
            entry
            for entry in node.value
            if isinstance(entry[1], ScalarNode) and entry[1].value and entry[1].end_mark.column
        ]
        return node.value[-1] if isinstance(value, dict | list) or not short else short[-1]

    def _under(self, name: Node, node: Node, made: Any) -> list[Splice] | None:
        """Replaces an empty value: `key:` at the end of the line."""
        rest = _REST.match(self.text, self._at(node.end_mark))
        if rest is None or self.text[self._at(node.end_mark) - 1] != ":":
            return None
        wide = style.indents(self.text)[0]
        return [
            self._lines(rest.end(), style.block(made, self.text, name.start_mark.column + wide))
        ]

    def _into_flow(self, node: Node, key: str | None, value: Any) -> list[Splice] | None:
        start, end = self._span(node)
        like = node.value[-1][0] if key is not None and node.value else None
        as_json = (
            self.text[: start + 1].lstrip()[:1] in ("{", "[")
            if like is None
            else self.text[self._at(like.start_mark)] == '"'
        )
        text = style.flow(value, as_json=as_json)
        if key is not None:
            text = f"{style.flow(key, as_json=as_json)}: {text}"
        if not node.value:
            return (
                None
                if self.text[start + 1 : end - 1].strip()
                else [Splice(start + 1, end - 1, text)]
            )
        last = node.value[-1] if key is None else node.value[-1][1]
        first = self._at((node.value[-1] if key is None else node.value[-1][0]).start_mark)
        where = self._at(last.end_mark)
        margin = self.text[self._line(first) : first]
        on_its_own = margin.isspace() and self._line(first) > start
        return [
            Splice(where, where, f",{self._newline}{margin}{text}" if on_its_own else f", {text}")
        ]

    def _out_of_flow(self, node: Node, index: int) -> list[Splice] | None:
        spans = [
            (
                self._at((child[0] if isinstance(child, tuple) else child).start_mark),
                self._at((child[1] if isinstance(child, tuple) else child).end_mark),
            )
            for child in node.value
        ]
        start, end = self._span(node)
        if len(spans) == 1:
            gap, splice = (
                self.text[start + 1 : spans[0][0]] + self.text[spans[0][1] : end - 1],
                Splice(start + 1, end - 1, ""),
            )
        elif index == 0:
            gap, splice = self.text[spans[0][1] : spans[1][0]], Splice(spans[0][0], spans[1][0], "")
        else:
            before = spans[index - 1][1]
            gap, splice = self.text[before : spans[index][0]], Splice(before, spans[index][1], "")
        return None if "#" in gap or splice.start > splice.end else [splice]

    def _emptied(self, name: Node | None, node: Node) -> list[Splice] | None:
        """Removes the only entry of a block, which leaves `key: []` or `key: {}`."""
        end = self._past(node)
        first = self._line(self._at(node.start_mark))
        colon = _COLON.match(self.text, self._at(name.end_mark)) if name is not None else None
        rest = _REST.match(self.text, colon.end()) if colon else None
        if end is None or colon is None or rest is None or rest.end() > first:
            return None
        empty = " []" if isinstance(node, SequenceNode) else " {}"
        # Comments between the key and its only entry are kept.
        return [Splice(colon.end(), colon.end(), empty), Splice(first, end, "")]
