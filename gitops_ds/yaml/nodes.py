"""The nodes of a YAML file, composed by libyaml (ruamel.yaml.clib) with marks and without resolved
tags, and the findings for its errors: problem, place and solution.

The limits of depth and number of nodes protect the parser itself.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any, Final

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.main import CParser  # type: ignore[attr-defined]  # None without the C parser
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.tag import Tag

from gitops_ds.core.finding import Finding, Place, refused

MAX_NODES: Final = 100_000  # of one document, aliases expanded
MAX_DEPTH: Final = 64


def c_parser_present() -> bool:
    """Whether ruamel.yaml has its C parser, the extra `ruamel.yaml[oldlibyaml]`."""
    return CParser is not None


# Four tags for all untagged nodes, so that libyaml's nodes need no tag look-up.
PLAIN: Final = Tag(suffix="plain")
QUOTED: Final = Tag(suffix="quoted")
MAPPING: Final = Tag(suffix="mapping")
SEQUENCE: Final = Tag(suffix="sequence")
MERGE: Final = "tag:yaml.org,2002:merge"  # yq writes `!!merge <<: *anchor`
TAGS: Final = {
    "tag:yaml.org,2002:str": QUOTED,
    "tag:yaml.org,2002:map": MAPPING,
    "tag:yaml.org,2002:seq": SEQUENCE,
}


class LimitPassed(Exception):
    """One of our limits was exceeded, without an error of the parser."""

    def __init__(self, what: str, node: Node | None = None) -> None:
        super().__init__(what)
        self.what, self.node = what, node


def _sort(kind: type[Node], _value: object, implicit: Any) -> Tag:
    if kind is ScalarNode:
        return PLAIN if implicit[0] else QUOTED
    return MAPPING if kind is MappingNode else SEQUENCE


class _Parser(CParser or object):  # type: ignore[misc]  # the extension has no types
    """libyaml's composer, with a stub in place of ruamel's tag resolver that returns the kind of
    the node.
    """

    def __init__(self, data: bytes) -> None:
        CParser.__init__(self, data)
        self._parser: Any = self
        self._composer: Any = self
        self.depth = 0
        self.nodes = 0

    def close(self) -> None:
        """Breaks the reference cycle, so that memory is released before the next garbage
        collection.
        """
        self._parser = self._composer = None

    # Called for every node: functions in C take a third of the time of methods.
    descend_resolver: Any = staticmethod(operator.is_)
    ascend_resolver: Any = staticmethod(bool)
    resolve: Any = staticmethod(_sort)


class _CountingParser(_Parser):
    """The composer with limits, for files that could exceed them: its recursion could crash the
    process.
    """

    def descend_resolver(self, _parent: object, _index: object) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH + 1:  # a scalar is a level, too
            raise LimitPassed(f"the document is nested more than {MAX_DEPTH} levels deep")

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: type[Node], value: object, implicit: Any) -> Tag:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise LimitPassed(f"a document has more than {MAX_NODES:,} values")
        return _sort(kind, value, implicit)


def _is_harmless(data: bytes) -> bool:
    """Whether no document can have more than MAX_NODES nodes (each takes a byte) or nest deeper
    than a few hundred levels.

    A block collection is indented more than its parent, or is a list at the column of the key above
    it: at most two levels per column. A flow collection needs its bracket. The limit of 64 levels
    is enforced when the values are built.
    """
    if len(data) > MAX_NODES:
        return False
    return data.count(b"[") + data.count(b"{") + 2 * max(map(len, data.split(b"\n"))) <= 400


_SURROGATES: Final = re.compile(rb"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def compose(data: bytes) -> Iterator[Node]:
    """The root of each document; raises YAMLError and LimitPassed."""
    if _SURROGATES.search(data) and data.lstrip()[:1] in (b"{", b"["):
        data = _SURROGATES.sub(_joined, data)
    if not c_parser_present():
        raise LimitPassed(
            "YAML can't be parsed: ruamel.yaml has no C parser; install ruamel.yaml[oldlibyaml]"
        )
    done = 0
    try:
        for root in _composed(data):
            yield root
            done += 1
    except MarkedYAMLError:
        veiled = _veiled(data)
        if veiled == data:
            raise
        for root in list(_composed(veiled))[done:]:
            _unveil(root)
            yield root


def last(node: Node) -> Node:
    """The last scalar or flow collection in a node: libyaml ends a block collection at the start of
    the next node.
    """
    while isinstance(node, (MappingNode, SequenceNode)) and node.value and not node.flow_style:
        node = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
    return node


def _composed(data: bytes) -> Iterator[Node]:
    parser = _Parser(data) if _is_harmless(data) else _CountingParser(data)
    try:
        while parser.check_node():
            parser.nodes = 0
            yield parser.get_node()
    finally:
        parser.close()


def _joined(pair: re.Match[bytes]) -> bytes:
    """A surrogate pair (JSON's escapes for a character beyond 16 bits) as YAML's escape of eight
    digits.
    """
    high, low = int(pair[1], 16), int(pair[2], 16)
    return b"\\U%08X" % (0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


_VEILS: Final = {b":": "\ue000".encode(), b"?": "\ue001".encode()}
_NO_INDICATOR: Final = re.compile(rb"(?<=[^\s'\"\[\]{},])[:?](?=[^\s,\[\]{}])")
_UNVEILED: Final = str.maketrans("\ue000\ue001", ":?")


def _veiled(data: bytes) -> bytes:
    """The file with a ":" or "?" inside a plain scalar of a flow collection replaced, such as
    `{image: foo:1}`, which kubectl accepts; unchanged if it contains characters of private use.

    The libyaml of ruamel.yaml.clib ends such a scalar at the character and raises an error. Those
    of these characters that can't be indicators are replaced by characters of private use, one by
    one, so that all positions are unchanged.
    """
    if any(veil in data for veil in _VEILS.values()):
        return data
    return _NO_INDICATOR.sub(lambda match: _VEILS[match[0]], data)


def _unveil(root: Node) -> None:
    """Restores the replaced characters in every scalar below; a node that aliases share is visited
    once.
    """
    waiting, met = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        if isinstance(node, ScalarNode):
            node.value = node.value.translate(_UNVEILED)
        elif isinstance(node, MappingNode):
            waiting += [part for pair in node.value for part in pair]
        else:
            waiting += node.value


SYNTAX: Final = refused("DS001", "file is not valid YAML")

# Compiled on first use: compiling takes as long as reading ten files.
_FORBIDDEN: Final = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_TAB: Final = "found a tab character that violates indentation"
# https://git-scm.com/docs/git-merge#_how_conflicts_are_presented
_CONFLICT: Final = r"^(?:<{7}|>{7}|\|{7}) |^={7}$"
_NOT_UTF_8: Final = "the file is not UTF-8: save it as UTF-8"
_MESSAGES: Final = {
    "mapping values are not allowed in this context": 'unexpected ":": quote the string, or fix '
    "the indentation",
    "could not find expected ':'": 'a key without ":": fix the indentation, or quote the string '
    "above",
    "did not find expected key": "expected a key here: fix the indentation, or quote the string "
    "above",
    "did not find expected '-' indicator": 'expected "-" here: fix the indentation',
    "found unexpected end of stream": "the file ends inside a quoted string: the closing quote is "
    "missing",
    "found unexpected document indicator": "a document ends inside a quoted string: the closing "
    "quote is missing",
    "second occurrence": "duplicate anchor in the document: rename it",
    "found undefined alias": "the alias has no anchor of that name above it",
    _TAB: "a tab can't indent YAML: use spaces",
    "found a tab character where an indentation space is "
    "expected": "a tab can't indent YAML: use spaces",
}


def finding_of_error(file: str, data: bytes, error: YAMLError) -> Finding:
    """The finding for an error of libyaml."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return SYNTAX.refusal(_NOT_UTF_8, _end_of(file, data[: wrong.start].decode("utf-8")))
    if not isinstance(error, MarkedYAMLError):
        forbidden = re.search(_FORBIDDEN, text)
        if forbidden is None:
            return SYNTAX.refusal(shorten(str(error)), Place(file))
        character = f"U+{ord(forbidden[0]):04X}"
        message = f"the character {character} is not allowed in YAML: remove it"
        return SYNTAX.refusal(message, _end_of(file, text[: forbidden.start()]))
    if marker := re.search(_CONFLICT, text, re.MULTILINE):
        message = f"conflict markers of a merge ({marker[0].strip()}): resolve the conflict"
        return SYNTAX.refusal(message, _end_of(file, text[: marker.start()]))
    mark = error.problem_mark or error.context_mark
    where = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    problem = str(error.problem or error.context or "syntax error")
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if (
        problem == "found character that cannot start any token"
        and line[mark.column : mark.column + 1] == "\t"
    ):
        problem = _TAB
    return SYNTAX.refusal(_MESSAGES.get(problem, f"invalid YAML: {problem}"), where)


def shorten(text: str) -> str:
    """The text in at most 80 characters."""
    return text if len(text) <= 80 else text[:77] + "..."


def _end_of(file: str, before: str) -> Place:
    line = before.count("\n")
    return Place(file, line + 1, len(before) - (before.rfind("\n") + 1) + 1)
