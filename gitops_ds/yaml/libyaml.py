"""Parses a file with libyaml (ruamel.yaml.clib), and finds the position of a value in its nodes.

The constructor below converts the nodes by kubectl's scalar rules (scalars.py), so that "unchanged"
means the same as for kubectl. Positions are not stored: `span` parses the bytes again, for the few
values of findings.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

import orjson
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gitops_ds.core.finding import Finding, Fix, Mend, Place, RuleDefinition, refused
from gitops_ds.core.objects import Path
from gitops_ds.core.values import replace
from gitops_ds.yaml import nodes, scalars
from gitops_ds.yaml.documents import AMBIGUOUS, Document, Parsed
from gitops_ds.yaml.nodes import MAX_DEPTH, MAX_NODES

MAX_BYTES: Final = 10 * 1024 * 1024
# The limit of values with aliases expanded: per byte of the file, and the minimum. Without aliases
# each value takes a byte.
_ALIASED, _ALIASED_AT_LEAST = 10, 10_000

DUPLICATE: Final = refused("DS002", "duplicate key in an object")


def read(file: str, data: bytes) -> Parsed:
    """All documents of a file, as `parser.read`."""
    build = _Build(file, spare=_ALIASED * len(data) + _ALIASED_AT_LEAST)
    documents: list[Document] = []
    if len(data) > MAX_BYTES:
        return Parsed(
            (),
            (
                nodes.SYNTAX.refusal(
                    f"the file has {len(data):,} bytes: the limit is {MAX_BYTES:,}", Place(file)
                ),
            ),
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Parsed(
            (), (nodes.SYNTAX.refusal("the file is UTF-16: save it as UTF-8", Place(file, 1, 1)),)
        )
    if data.startswith(b"\xef\xbb\xbf"):
        mark = "the file starts with a byte order mark, which some tools reject: remove it"
        build.findings.append(nodes.SYNTAX.warning(mark, Place(file, 1, 1)))
    try:
        for index, node in enumerate(nodes.compose(data)):
            value = build.document(node)
            build.add_fixes(node)
            if value is not None:
                documents.append(Document(index, value))
    except nodes.LimitPassed as limit:
        build.refuse(nodes.SYNTAX, limit.what, limit.node)
    except YAMLError as error:
        if not documents and (value := _long_keyed_json(data)) is not None:
            return Parsed((Document(0, value),), tuple(build.findings))
        build.findings.append(nodes.finding_of_error(file, data, error))
    return Parsed(tuple(documents), tuple(build.findings))


def span(
    file: str, data: bytes, document: int, path: Path, *, key: bool = False
) -> tuple[Place, Place]:
    """The start and the end of a value or key, as `parser.span`."""
    trees = _trees(data)
    if document >= len(trees):
        return Place(file), Place(file)
    key_node: Node = trees[document]
    value: Node = trees[document]
    complete = True
    for step in path:
        child = _step(value, step)
        if child is None:
            complete = False
            break
        key_node, value = child
    node = value if complete and not key else key_node
    last = nodes.last(node)
    start, end = node.start_mark, last.end_mark
    return Place(file, start.line + 1, start.column + 1), Place(file, end.line + 1, end.column + 1)


# A cache of the values of short, unambiguous plain scalars and keys: files repeat the same few
# hundred words.
_SEEN: Final[dict[str, Any]] = {}
_SEEN_KEYS: Final[dict[str, str]] = {}
_SEEN_AT_MOST: Final = 50_000
_UNSEEN: Final = object()


@dataclass(slots=True)
class _Build:
    """Constructs the values of one file, with its findings."""

    file: str
    findings: list[Finding] = field(default_factory=list)
    left: int = 0  # values of the document
    spare: int = 0  # values of the file
    # the index of the finding, the node, and its value
    ambiguous: list[tuple[int, Node, scalars.Scalar]] = field(default_factory=list)

    def refuse(self, rule: RuleDefinition, message: str, node: Node | None) -> None:
        self.findings.append(rule.refusal(message, _at(self.file, node)))

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
        """Counts the values with aliases expanded; the depth limits aliases that contain
        themselves.
        """
        self.left -= count
        if self.left < 0:
            most = min(MAX_NODES, self.spare)
            raise nodes.LimitPassed(
                f"with its aliases expanded the document has more than {most:,} values", node
            )
        if depth > MAX_DEPTH:
            raise nodes.LimitPassed(
                f"the document is nested more than {MAX_DEPTH} levels deep, or an alias contains "
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
                self.report_duplicate_key(node, key, key_node)
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
            self.refuse(nodes.SYNTAX, "a key must be a string, not a list or a mapping", node)
            return None
        text: str = node.value
        if node.ctag is not nodes.PLAIN:
            return text
        name = scalars.key(text)
        if name is None:
            self.refuse(
                nodes.SYNTAX, f"the key {text or '(empty)'} is not a string: quote it", node
            )
        elif name != text:
            self.warn(
                f'the key {text} is "{name}" in kubectl and differs in other YAML parsers: '
                "quote it",
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
                nodes.SYNTAX,
                f'{text} is not a valid JSON number: write "{text}" for a string',
                node,
            )
            return text
        if scalars.ambiguous(text):
            self.ambiguous.append((len(self.findings), node, value))
            self.warn(
                f"{text} is {_shown(value)} in kubectl and differs in other YAML parsers: "
                f"{_advice(text, value)}",
                node,
            )
        elif len(_SEEN) < _SEEN_AT_MOST and len(text) <= 64:
            _SEEN[text] = value
        return value

    def tagged(self, node: Node, depth: int) -> Any:
        tag = nodes.TAGS.get(str(node.tag))
        kinds = {nodes.QUOTED: ScalarNode, nodes.MAPPING: MappingNode, nodes.SEQUENCE: SequenceNode}
        if tag is None or not isinstance(node, kinds[tag]):
            self.refuse(
                nodes.SYNTAX,
                f"the tag {nodes.shorten(str(node.tag))} is not supported: "
                "use !!str, !!map or !!seq",
                node,
            )
            return None
        if tag is nodes.QUOTED:
            return node.value
        if tag is nodes.MAPPING:
            return self.mapping(node, depth + 1)
        return self.sequence(node, depth + 1)

    def merged(self, node: Node, depth: int) -> dict[str, Any]:
        """The keys of a merge key `<<:`; the first of several mappings takes precedence. As in
        kubectl they override keys before it in the mapping.
        """
        if node.ctag is nodes.MAPPING:
            return self.mapping(node, depth + 1)
        if node.ctag is not nodes.SEQUENCE or any(
            item.ctag is not nodes.MAPPING for item in node.value
        ):
            self.refuse(nodes.SYNTAX, "<< must be a mapping or a list of mappings", node)
            return {}
        self.spend(node, len(node.value), depth)
        result: dict[str, Any] = {}
        for item in reversed(node.value):
            result.update(self.mapping(item, depth + 1))
        return result

    def report_duplicate_key(self, node: Node, key: str, again: Node) -> None:
        first = next(k for k, _ in node.value if isinstance(k, ScalarNode) and _key_text(k) == key)
        self.refuse(
            DUPLICATE,
            f'duplicate key "{nodes.shorten(key)}"; the first is at {_at(self.file, first)}',
            again,
        )

    def warn(self, message: str, node: Node) -> None:
        place, end = (
            _at(self.file, node),
            Place(self.file, node.end_mark.line + 1, node.end_mark.column + 1),
        )
        self.findings.append(Finding(AMBIGUOUS.id, AMBIGUOUS.severity, message, place, end=end))

    def add_fixes(self, root: Node) -> None:
        """Adds path and fix, kubectl's value, to the findings on ambiguous values; quoting a string
        is safe.
        """
        if not self.ambiguous:
            return
        paths = _paths(root)
        for index, node, value in self.ambiguous:
            path, safe = paths[id(node)], isinstance(value, str)
            fix = Fix(
                f'write "{value}"' if safe else f"write {json.dumps(value)}",
                (Mend(path, value),),
                safe,
            )
            self.findings[index] = replace(self.findings[index], path=path, fix=fix)
        self.ambiguous.clear()


def _is_merge(key: Node) -> bool:
    return bool(key.value == "<<") and (key.ctag is nodes.PLAIN or str(key.tag) == nodes.MERGE)


def _key_text(key: ScalarNode) -> str | None:
    return scalars.key(key.value) if key.ctag is nodes.PLAIN else cast("str", key.value)


def _at(file: str, node: Node | None) -> Place:
    return (
        Place(file, node.start_mark.line + 1, node.start_mark.column + 1) if node else Place(file)
    )


def _shown(value: scalars.Scalar) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "a string"
        case _:
            return f"the number {value}"


def _advice(text: str, value: scalars.Scalar) -> str:
    match value:
        case bool():
            return f'write {"true" if value else "false"}, or "{text}" for a string'
        case str():
            return f'write "{text}"'
        case _:
            return f'write {value}, or "{text}" for a string'


@lru_cache(maxsize=4)
def _trees(data: bytes) -> tuple[Node, ...]:
    """The nodes of a file up to the first error. Cached, because a file often has several
    findings.
    """
    trees: list[Node] = []
    with contextlib.suppress(YAMLError, nodes.LimitPassed):
        trees.extend(nodes.compose(data))
    return tuple(trees)


def _step(node: Node, step: str | int) -> tuple[Node, Node] | None:
    """The key node of a child, and the child; in a list both are the item."""
    if isinstance(node, SequenceNode):
        items = node.value
        return (
            (items[step], items[step]) if isinstance(step, int) and 0 <= step < len(items) else None
        )
    if not isinstance(node, MappingNode):
        return None
    match = None
    for key, value in node.value:
        if _is_merge(key):
            sources = value.value if isinstance(value, SequenceNode) else [value]
            match = next((hit for hit in (_step(source, step) for source in sources) if hit), match)
        elif isinstance(key, ScalarNode) and _key_text(key) == step:
            match = key, value
    return match


def _paths(root: Node) -> dict[int, Path]:
    """The path of each value by its node's id; for a shared alias, the first of the shortest."""
    paths: dict[int, Path] = {}
    queue: deque[tuple[Node, Path]] = deque([(root, ())])
    while queue:
        node, path = queue.popleft()
        if id(node) in paths:
            continue
        paths[id(node)] = path
        if isinstance(node, SequenceNode):
            queue.extend((item, (*path, index)) for index, item in enumerate(node.value))
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                name = _key_text(key) if isinstance(key, ScalarNode) else None
                queue.append((value, path if _is_merge(key) else (*path, name or "")))
    return paths


_LONGEST_KEY: Final = 1000


def _long_keyed_json(data: bytes) -> dict[str, Any] | None:
    """A JSON object with a key of more than 1,024 bytes, which libyaml rejects; its values have no
    positions. None for any other file, and for JSON that is not portable or has a duplicate key.
    """
    if not data.lstrip().startswith(b"{") or max(map(len, data.split(b'"'))) < _LONGEST_KEY:
        return None
    try:
        value: dict[str, Any] = json.loads(data, object_pairs_hook=_without_duplicates)
        # Python also accepts NaN, unpaired surrogates, and numbers out of range for other parsers.
        is_portable = _is_flat_enough(value) and orjson.loads(orjson.dumps(value)) == value
    except (ValueError, TypeError, RecursionError):
        return None
    return value if is_portable else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _is_flat_enough(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return True
    return False
