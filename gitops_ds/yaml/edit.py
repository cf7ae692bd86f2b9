"""Changes values in a YAML file and keeps the rest as written: comments, quotes, order,
indentation.

The first method is splices of the text (splice.py), which change nothing else. If they are not
possible, ruamel.yaml's round-trip mode writes the file, which keeps comments but may move them:
https://yaml.dev/doc/ruamel.yaml/. The result of both is parsed again and must have the intended
values.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from typing import Any

import msgspec
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from gitops_ds.core.objects import MISSING, Path, value_at
from gitops_ds.yaml import nodes, parser, splice, style
from gitops_ds.yaml.splice import Splice


class Edit(msgspec.Struct, frozen=True):
    """A value to set at a path of one document (counted from 0); None removes the key or the list
    item.

    `key` renames the existing key and keeps its value. `make` creates missing mappings on the path.
    An index equal to the length of the list appends an item.
    """

    document: int
    path: Path
    value: Any = None
    key: str = ""
    make: bool = False


def apply(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file after the edits. Their paths refer to the original file, and must not be inside each
    other.

    Raises ValueError for invalid YAML, for a path without a parent, and for a value that is shared
    by an alias.
    """
    if not edits:
        return data
    ordered = _in_order(edits)
    values = _values(data)
    for edit in ordered:
        if edit.document not in values:
            raise ValueError(f"there is no document {edit.document}")
        _put(values[edit.document], edit)
    for way in (_spliced, _round_trip, _spliced_in_flow):
        made = way(data, ordered)
        if made is not None and _values(made) == values:
            return made
    raise ValueError("the value is shared by an alias or a merge key")


def changed(value: Any, edits: Sequence[Edit]) -> Any:
    """A plain value after edits, whose document is ignored; the removal of a missing value is
    ignored. Raises ValueError as `apply` does.
    """
    made = copy.deepcopy(value)
    for edit in _in_order(edits):
        if edit.value is not None or edit.key or value_at(made, edit.path) is not MISSING:
            _put(made, edit)
    return made


def _in_order(edits: Sequence[Edit]) -> list[Edit]:
    """The edits in a safe order: first those that set or rename, then removals, of list items from
    the last, so that the indices of the others remain valid.
    """
    coming = [edit for edit in edits if edit.value is not None or edit.key]
    going = [edit for edit in edits if edit.value is None and not edit.key]
    return [
        *coming,
        *sorted(
            going,
            key=lambda one: (one.document, [str(step).zfill(9) for step in one.path]),
            reverse=True,
        ),
    ]


def _values(data: bytes) -> dict[int, Any]:
    return {document.index: document.value for document in parser.read("", data).documents}


def _put(root: Any, edit: Edit, styled: bool = False) -> None:
    """Applies the edit to a tree of plain values or (styled) to one of the round trip."""
    *way, last = edit.path
    parent = root
    try:
        for step in way:
            if edit.make and isinstance(parent, dict) and parent.get(step) is None:
                parent[step] = type(parent)()
            parent = parent[step]
        if edit.key:
            _rename(parent, last, edit.key)
        elif edit.value is None:
            del parent[last]
        elif isinstance(parent, list) and last == len(parent):
            parent.append(style.quoted(edit.value) if styled else edit.value)
        else:
            old = parent.get(last) if isinstance(parent, dict) else parent[last]
            parent[last] = style.quoted(edit.value, old) if styled else edit.value
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"can't edit {'.'.join(map(str, edit.path))}") from error


def _rename(parent: dict[Any, Any], old: Any, new: str) -> None:
    """Renames a key at its place, with its comment."""
    if new in parent:
        raise KeyError(new)
    entries = [(new if key == old else key, value) for key, value in parent.items()]
    parent[old]  # raises for a missing parent
    comments = getattr(getattr(parent, "ca", None), "items", {})
    parent.clear()
    parent.update(entries)
    if old in comments:
        comments[new] = comments.pop(old)


def _spliced_in_flow(data: bytes, edits: Sequence[Edit]) -> bytes | None:
    """The edits with new collections in flow style: after some comments, ruamel.yaml writes block
    collections that it can't parse.
    """
    return _spliced(data, edits, in_flow=True)


def _spliced(data: bytes, edits: Sequence[Edit], *, in_flow: bool = False) -> bytes | None:
    """The text after the edits as splices; None if an edit is not possible as a splice."""
    try:
        text = data.decode("utf-8")
        waiting = list(edits)
        while waiting:
            made = _round(text, waiting, in_flow)
            if made is None:
                return None
            text, waiting = made
        return text.encode()
    except (UnicodeDecodeError, YAMLError, nodes.LimitPassed, IndexError):
        return None


def _round(text: str, edits: Sequence[Edit], in_flow: bool) -> tuple[str, list[Edit]] | None:
    """The text after the edits with known positions in one parse, and the remaining edits.

    A second edit of the same collection needs the positions after the first one, and a list item is
    removed only when no remaining path has a later index of the list.
    """
    trees = list(nodes.compose(text.encode()))
    source = splice.Text(text)
    splices: list[Splice] = []
    waiting: list[Edit] = []
    taken: set[tuple[int, Path]] = set()
    held: set[tuple[int, Path]] = set()
    for edit in edits:
        trail = _trail(trees[edit.document], edit.path)
        around, parent = (
            (edit.document, edit.path[: len(trail) - 1]),
            (edit.document, edit.path[:-1]),
        )
        goes = edit.value is None and not edit.key
        if goes:
            around = parent
        if around in taken or (goes and isinstance(edit.path[-1], int) and parent in held):
            waiting.append(edit)
            held.update((edit.document, edit.path[:length]) for length in range(len(edit.path)))
            continue
        new_splices = _splices(source, trail, edit, in_flow)
        if new_splices is None:
            return None
        taken.add(around)
        splices += new_splices
    return splice.joined(text, splices), waiting


# The nodes on a path, each after the node of its key (None: a list item, or the root).
Trail = list[tuple[Node | None, Node]]


def _trail(root: Node, path: Path) -> Trail:
    trail: Trail = [(None, root)]
    for step in path:
        child = _child(trail[-1][1], step)
        if child is None:
            break
        trail.append(child)
    return trail


def _child(node: Node, step: str | int) -> tuple[Node | None, Node] | None:
    if isinstance(node, SequenceNode):
        return (
            (None, node.value[step]) if isinstance(step, int) and step < len(node.value) else None
        )
    if not isinstance(node, MappingNode):
        return None
    return next(((key, value) for key, value in node.value if key.value == step), None)


def _splices(source: splice.Text, trail: Trail, edit: Edit, in_flow: bool) -> list[Splice] | None:
    there = len(trail) == len(edit.path) + 1
    if there and edit.key:
        key = trail[-1][0]
        return source.replaced(key, edit.key) if key is not None else None
    if there and edit.value is None:
        name, parent = trail[-2]
        index = next(
            i
            for i, one in enumerate(parent.value)
            if trail[-1][1] in (one if isinstance(one, tuple) else (one,))
        )
        return source.removed((name, parent), index)
    if there and isinstance(edit.value, dict | list):
        return source.rewritten(trail[-1][1], edit.value) if in_flow else None
    if there:
        return source.replaced(trail[-1][1], edit.value)
    missing = edit.path[len(trail) - 1 :]
    value = edit.value
    for step in reversed(missing[1:]):
        value = {step: value}
    return source.added(
        trail[-1], missing[0] if isinstance(missing[0], str) else None, value, len(trail)
    )


def _round_trip(data: bytes, edits: Sequence[Edit]) -> bytes:
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    yaml = style.writer(text, explicit_start=data.lstrip().startswith(b"---"))
    try:
        loaded = list(yaml.load_all(text))
    except YAMLError as error:
        raise ValueError(str(error)) from error
    for edit in edits:
        _put(loaded[edit.document], edit, styled=True)
    out = io.BytesIO()
    yaml.dump_all(loaded, out)
    made = out.getvalue()
    return made.replace(b"\n", b"\r\n") if b"\r\n" in data else made
