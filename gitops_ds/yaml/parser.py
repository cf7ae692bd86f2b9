"""A file of YAML or JSON as kubectl reads it, in one pass, and where each of its values stands.

What is plain enough is read line by line (plain_lines.py). Else libyaml (through ruamel.yaml.clib)
builds the nodes, and a constructor of our own turns them into plain values by kubectl's scalar
rules (scalars.py), so that what we call unchanged is what kubectl would call unchanged. Positions
are not kept: `place` reads the bytes again for the few values that somebody asks about. Nothing
here raises for any bytes: what is wrong is a `Finding`.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, cast

import orjson
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gitops_ds.model.finding import Finding, Fix, Mend, Place, Severity, refusal
from gitops_ds.model.objects import Path
from gitops_ds.yaml import fast_path, nodes, scalars
from gitops_ds.yaml.nodes import MAX_DEPTH, MAX_NODES

MAX_BYTES: Final = 10 * 1024 * 1024
# How many values a file may have, aliases expanded, for each byte of it, and in a small one.
# Without aliases a value takes a byte.
_ALIASED, _ALIASED_AT_LEAST = 10, 10_000

SYNTAX: Final = "DS001"
DUPLICATE: Final = "DS002"
AMBIGUOUS: Final = "DS007"


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: its place in the file, from 0, and its value in plain dict, list,
    str, int, float, bool and None.
    """

    index: int
    value: Any


@dataclass(frozen=True, slots=True)
class Parsed:
    """The documents of a file (empty ones are left out but counted), and what is wrong with it as
    YAML.

    After a finding about syntax or a limit the documents are those that stand before it.
    """

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]


def read(file: str, data: bytes) -> Parsed:
    """Every document of a file. `file` is only the name that the findings carry.

    Findings: DS001 (no YAML, not UTF-8, a limit passed; refused), DS002 (a key twice; refused, the
    last one wins as with kubectl), DS007 (a plain scalar that YAML 1.1, YAML 1.2 and kubectl read
    differently; a warning).
    """
    plain = fast_path.read(data)
    return (
        through_nodes(file, data)
        if plain is None
        else Parsed(tuple(Document(*one) for one in plain), ())
    )


def through_nodes(file: str, data: bytes) -> Parsed:
    """The same for any file, by libyaml."""
    build = _Build(file, spare=_ALIASED * len(data) + _ALIASED_AT_LEAST)
    documents: list[Document] = []
    if len(data) > MAX_BYTES:
        return Parsed(
            (),
            (
                refusal(
                    SYNTAX,
                    f"the file has {len(data):,} bytes: at most {MAX_BYTES:,} are read",
                    Place(file),
                ),
            ),
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Parsed(
            (), (refusal(SYNTAX, "the file is UTF-16: save it as UTF-8", Place(file, 1, 1)),)
        )
    if data.startswith(b"\xef\xbb\xbf"):
        mark = "the file starts with a byte order mark, which some tools refuse: save it without"
        build.findings.append(Finding(SYNTAX, Severity.WARNING, mark, Place(file, 1, 1)))
    try:
        for index, node in enumerate(nodes.compose(data)):
            value = build.document(node)
            build.mend(node)
            if value is not None:
                documents.append(Document(index, value))
    except nodes.LimitPassed as limit:
        build.refuse(SYNTAX, limit.what, limit.node)
    except YAMLError as error:
        if not documents and (value := _long_keyed_json(data)) is not None:
            return Parsed((Document(0, value),), tuple(build.findings))
        build.findings.append(_syntax(file, data, error))
    return Parsed(tuple(documents), tuple(build.findings))


def place(file: str, data: bytes, document: int, path: Path, *, key: bool = False) -> Place:
    """Where a value (with `key`: the key that names it) starts; the nearest parent's key where the
    path leads nowhere.
    """
    return span(file, data, document, path, key=key)[0]


def span(
    file: str, data: bytes, document: int, path: Path, *, key: bool = False
) -> tuple[Place, Place]:
    """The first character of a value or key, and the place just after its last; both (0, 0) where
    there is no such document.
    """
    trees = _trees(data)
    if document >= len(trees):
        return Place(file), Place(file)
    named: Node = trees[document]
    value: Node = trees[document]
    whole = True
    for step in path:
        found = _step(value, step)
        if found is None:
            whole = False
            break
        named, value = found
    node = value if whole and not key else named
    last = nodes.last(node)
    start, end = node.start_mark, last.end_mark
    return Place(file, start.line + 1, start.column + 1), Place(file, end.line + 1, end.column + 1)


def _long_keyed_json(data: bytes) -> dict[str, Any] | None:
    """A JSON object in which libyaml found a key of more than 1,024 bytes; its values have no
    positions. None for anything else.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    if not data.lstrip().startswith(b"{") or max(map(len, data.split(b'"'))) < _LONGEST_KEY:
        return None
    try:
        found: dict[str, Any] = json.loads(data, object_pairs_hook=once)
        # Python takes more for JSON than it is: NaN, half a surrogate pair, numbers that nobody
        # else can hold.
        is_plain = _is_flat_enough(found) and orjson.loads(orjson.dumps(found)) == found
    except (ValueError, TypeError, RecursionError):
        return None
    return found if is_plain else None


def _is_flat_enough(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


_LONGEST_KEY: Final = 1000


# What plain scalars and keys mean, of those that are short, unambiguous and seen before: files
# repeat the same few hundred words.
_SEEN: Final[dict[str, Any]] = {}
_SEEN_KEYS: Final[dict[str, str]] = {}
_SEEN_AT_MOST: Final = 50_000
_UNSEEN: Final = object()


@dataclass(slots=True)
class _Build:
    """The values of one file's nodes, and the complaints met on the way."""

    file: str
    findings: list[Finding] = field(default_factory=list)
    left: int = 0
    spare: int = 0  # what is left for the file
    # which finding, and what to write instead
    doubtful: list[tuple[int, Node, scalars.Scalar]] = field(default_factory=list)

    def refuse(self, rule: str, message: str, node: Node | None) -> None:
        self.findings.append(refusal(rule, message, _at(self.file, node)))

    def document(self, root: Node) -> Any:
        self.left = most = min(MAX_NODES, self.spare)
        value = self.value(root, 0)
        self.spare -= most - self.left
        return value

    def value(self, node: Node, depth: int) -> Any:
        tag = node.ctag
        if tag is nodes.PLAIN:
            value = _SEEN.get(node.value, _UNSEEN)
            return self.plain(node) if value is _UNSEEN else value
        if tag is nodes.QUOTED:
            return node.value
        if tag is nodes.MAPPING:
            return self.mapping(node, depth + 1)
        if tag is nodes.SEQUENCE:
            return self.sequence(node, depth + 1)
        return self.tagged(node, depth)

    def spend(self, node: Node, count: int, depth: int) -> None:
        """Aliases make few nodes many: the budget counts what they expand to, and the depth ends
        those that hold themselves.
        """
        self.left -= count
        if self.left < 0:
            most = min(MAX_NODES, self.spare)
            raise nodes.LimitPassed(
                f"with its aliases expanded the document has more than {most:,} values", node
            )
        if depth > MAX_DEPTH:
            raise nodes.LimitPassed(
                f"the document is nested more than {MAX_DEPTH} levels deep, or an alias holds "
                "itself",
                node,
            )

    def sequence(self, node: Node, depth: int) -> list[Any]:
        self.spend(node, len(node.value), depth)
        return [self.value(item, depth) for item in node.value]

    def mapping(self, node: Node, depth: int) -> dict[str, Any]:
        self.spend(node, 2 * len(node.value), depth)
        result: dict[str, Any] = {}
        named: set[str] = set()
        for key_node, value_node in node.value:
            key = _SEEN_KEYS.get(key_node.value) if key_node.ctag is nodes.PLAIN else None
            if key is None:
                if _is_merge(key_node):
                    result.update(self.merged(value_node, depth))
                    continue
                key = self.key(key_node)
                if key is None:
                    continue
            if key in named:
                self.twice(node, key, key_node)
            named.add(key)
            tag = value_node.ctag
            if tag is nodes.PLAIN:
                value = _SEEN.get(value_node.value, _UNSEEN)
                result[key] = self.plain(value_node) if value is _UNSEEN else value
            elif tag is nodes.QUOTED:
                result[key] = value_node.value
            else:
                result[key] = self.value(value_node, depth)
        return result

    def key(self, node: Node) -> str | None:
        if not isinstance(node, ScalarNode):
            self.refuse(SYNTAX, "a key must be a text, not a list or a mapping", node)
            return None
        text: str = node.value
        if node.ctag is not nodes.PLAIN:
            return text
        name = scalars.key(text)
        if name is None:
            self.refuse(SYNTAX, f"the key {text or '(nothing)'} is no text: quote it", node)
        elif name != text:
            self.doubt(
                f'the key {text} is read as "{name}" by kubectl and otherwise elsewhere: quote it',
                node,
            )
        elif len(_SEEN_KEYS) < _SEEN_AT_MOST and len(text) <= 64 and text != "<<":
            _SEEN_KEYS[text] = name
        return name

    def plain(self, node: Node) -> Any:
        text: str = node.value
        value = scalars.read(text)
        if isinstance(value, float) and not math.isfinite(value):
            self.refuse(
                SYNTAX,
                f'{text} is a number that JSON can\'t hold: write "{text}" if a text is meant',
                node,
            )
            return text
        if scalars.ambiguous(text):
            self.doubtful.append((len(self.findings), node, value))
            self.doubt(
                f"{text} is {_shown(value)} to kubectl and something else to other YAML readers: "
                f"{_advice(text, value)}",
                node,
            )
        elif len(_SEEN) < _SEEN_AT_MOST and len(text) <= 64:
            _SEEN[text] = value
        return value

    def tagged(self, node: Node, depth: int) -> Any:
        known = nodes.TAGS.get(str(node.tag))
        kinds = {nodes.QUOTED: ScalarNode, nodes.MAPPING: MappingNode, nodes.SEQUENCE: SequenceNode}
        if known is None or not isinstance(node, kinds[known]):
            self.refuse(
                SYNTAX,
                f"the tag {_short(str(node.tag))} is not supported: only !!str, !!map and !!seq are",
                node,
            )
            return None
        if known is nodes.QUOTED:
            return node.value
        if known is nodes.MAPPING:
            return self.mapping(node, depth + 1)
        return self.sequence(node, depth + 1)

    def merged(self, node: Node, depth: int) -> dict[str, Any]:
        """What `<<:` brings: of several mappings the earlier wins. As with kubectl it wins over
        keys before it in the mapping.
        """
        if node.ctag is nodes.MAPPING:
            return self.mapping(node, depth + 1)
        if node.ctag is not nodes.SEQUENCE or any(
            item.ctag is not nodes.MAPPING for item in node.value
        ):
            self.refuse(SYNTAX, "<< takes a mapping or a list of mappings", node)
            return {}
        self.spend(node, len(node.value), depth)
        result: dict[str, Any] = {}
        for item in reversed(node.value):
            result.update(self.mapping(item, depth + 1))
        return result

    def twice(self, node: Node, key: str, again: Node) -> None:
        first = next(k for k, _ in node.value if isinstance(k, ScalarNode) and _key_text(k) == key)
        self.refuse(
            DUPLICATE,
            f'the key "{_short(key)}" is here a second time; the first is at '
            f"{_at(self.file, first)}",
            again,
        )

    def doubt(self, message: str, node: Node) -> None:
        place, end = (
            _at(self.file, node),
            Place(self.file, node.end_mark.line + 1, node.end_mark.column + 1),
        )
        self.findings.append(Finding(AMBIGUOUS, Severity.WARNING, message, place, end=end))

    def mend(self, root: Node) -> None:
        """Gives the doubts about values of a document their paths, and what kubectl reads as the
        fix; quoting a text is safe.
        """
        if not self.doubtful:
            return
        ways = _ways(root)
        for index, node, value in self.doubtful:
            path, safe = ways[id(node)], isinstance(value, str)
            fix = Fix(
                f'write "{value}"' if safe else f"write {json.dumps(value)}",
                (Mend(path, value),),
                safe,
            )
            self.findings[index] = replace(self.findings[index], path=path, fix=fix)
        self.doubtful.clear()


def _is_merge(key: Node) -> bool:
    return key.ctag is nodes.PLAIN and bool(key.value == "<<")


def _key_text(key: ScalarNode) -> str | None:
    return scalars.key(key.value) if key.ctag is nodes.PLAIN else cast("str", key.value)


def _at(file: str, node: Node | None) -> Place:
    return (
        Place(file, node.start_mark.line + 1, node.start_mark.column + 1) if node else Place(file)
    )


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _shown(value: scalars.Scalar) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "a text"
        case _:
            return f"the number {value}"


def _advice(text: str, value: scalars.Scalar) -> str:
    match value:
        case bool():
            return f'write {"true" if value else "false"}, or "{text}" if a text is meant'
        case str():
            return f'write "{text}"'
        case _:
            return f'write {value}, or "{text}" if a text is meant'


@lru_cache(maxsize=4)
def _trees(data: bytes) -> tuple[Node, ...]:
    """The nodes of a file as far as it can be read. A few are kept, because findings come in
    groups.
    """
    trees: list[Node] = []
    with contextlib.suppress(YAMLError, nodes.LimitPassed):
        trees.extend(nodes.compose(data))
    return tuple(trees)


def _step(node: Node, step: str | int) -> tuple[Node, Node] | None:
    """The node that names a child, and the child; of a list both are the item."""
    if isinstance(node, SequenceNode):
        items = node.value
        return (
            (items[step], items[step]) if isinstance(step, int) and 0 <= step < len(items) else None
        )
    if not isinstance(node, MappingNode):
        return None
    found = None
    for key, value in node.value:
        if _is_merge(key):
            sources = value.value if isinstance(value, SequenceNode) else [value]
            found = next((hit for hit in (_step(source, step) for source in sources) if hit), found)
        elif isinstance(key, ScalarNode) and _key_text(key) == step:
            found = key, value
    return found


def _ways(root: Node) -> dict[int, Path]:
    """The path of each value below, by its node's id; of one that aliases share, the first of the
    shortest.
    """
    found: dict[int, Path] = {}
    waiting: deque[tuple[Node, Path]] = deque([(root, ())])
    while waiting:
        node, path = waiting.popleft()
        if id(node) in found:
            continue
        found[id(node)] = path
        if isinstance(node, SequenceNode):
            waiting.extend((item, (*path, index)) for index, item in enumerate(node.value))
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                name = _key_text(key) if isinstance(key, ScalarNode) else None
                waiting.append((value, path if _is_merge(key) else (*path, name or "")))
    return found


# Compiled when it is asked for, which takes as long as ten files.
_FORBIDDEN: Final = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"

_HINTS: Final = {
    "mapping values are not allowed in this context": 'a ":" where no key can stand: quote the '
    "text, or mend the indentation",
    "could not find expected ':'": 'a key without ":": mend the indentation, or quote the text '
    "above",
    "did not find expected key": "expected a key here: mend the indentation, or quote the text "
    "above",
    "did not find expected '-' indicator": 'expected "-" here: mend the indentation',
    "found unexpected end of stream": "the file ends inside a quoted text: a closing quote is "
    "missing",
    "found unexpected document indicator": "a document ends inside a quoted text: a closing quote "
    "is missing",
    "second occurrence": "this anchor stands twice in the document: give it another name",
    "found undefined alias": "no anchor of this name stands before it",
    "found a tab character that violates indentation": "a tab can't indent YAML: use spaces",
    "found a tab character where an indentation space is "
    "expected": "a tab can't indent YAML: use spaces",
}


def _syntax(file: str, data: bytes, error: YAMLError) -> Finding:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return refusal(
            SYNTAX,
            "the file is not UTF-8: save it as UTF-8",
            _offset(file, data[: wrong.start].decode("utf-8")),
        )
    if not isinstance(error, MarkedYAMLError):
        forbidden = re.search(_FORBIDDEN, text)
        where = _offset(file, text[: forbidden.start()]) if forbidden else Place(file)
        what = (
            f"the character U+{ord(forbidden[0]):04X} is not allowed in YAML: remove it"
            if forbidden
            else _short(str(error))
        )
        return refusal(SYNTAX, what, where)
    mark = error.problem_mark or error.context_mark
    where = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    problem = str(error.problem or error.context or "this is no YAML")
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if (
        problem == "found character that cannot start any token"
        and line[mark.column : mark.column + 1] == "\t"
    ):
        problem = "found a tab character that violates indentation"
    return refusal(SYNTAX, _HINTS.get(problem, f"this is no YAML: {problem}"), where)


def _offset(file: str, before: str) -> Place:
    line = before.count("\n")
    return Place(file, line + 1, len(before) - (before.rfind("\n") + 1) + 1)
