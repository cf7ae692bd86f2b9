"""Values with their sources: trees of dicts and lists whose scalars have pointers.

A `TracedScalar` equals its plain value, so that patches and comparisons work on traced trees as on
plain ones. None, `{}` and `[]` stay plain, because patches test for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gitops_ds.core.objects import Path
from gitops_ds.core.sources.bundle import Pointer

# dict[str, Tree] | list[Tree] | Scalar | None
TracedTree = Any


@dataclass(frozen=True, slots=True, eq=False)
class TracedScalar:
    """A string, number or boolean, and the pointers that set it, the effective one first."""

    value: str | int | float | bool
    set_by: tuple[Pointer, ...]

    def __eq__(self, other: object) -> bool:
        """Equal to the plain value and to any other scalar of that value, regardless of its
        sources.
        """
        return bool(self.value == (other.value if isinstance(other, TracedScalar) else other))

    def __hash__(self) -> int:
        """The hash of the plain value."""
        return hash(self.value)


def trace(
    value: Any, pointer: Pointer, set_by: Mapping[Path, tuple[Pointer, ...]] | None = None
) -> TracedTree:
    """The value as a tree. The source of each scalar is its place below the pointer, or its entry
    or that of a parent in `known`.
    """
    if set_by:
        return _known(value, (), (pointer,), set_by)
    file, document = pointer.file, pointer.document
    return tree(value, lambda path: (Pointer(file, document, path),), pointer.path)


def tree(value: Any, setters: Callable[[Path], tuple[Pointer, ...]], path: Path = ()) -> TracedTree:
    """The value as a tree; `setters` maps a path (`path` is that of the value) to the origins of a
    scalar.
    """
    if isinstance(value, Mapping):
        return {key: tree(item, setters, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [tree(item, setters, (*path, index)) for index, item in enumerate(value)]
    return value if value is None else TracedScalar(value, setters(path))


def _known(
    value: Any, path: Path, above: tuple[Pointer, ...], set_by: Mapping[Path, tuple[Pointer, ...]]
) -> TracedTree:
    here = set_by.get(path, above)
    if isinstance(value, Mapping):
        return {key: _known(item, (*path, key), here, set_by) for key, item in value.items()}
    if isinstance(value, list):
        return [_known(item, (*path, index), here, set_by) for index, item in enumerate(value)]
    return value if value is None else TracedScalar(value, here)


def set_by(value: Any, *pointers: Pointer) -> TracedTree:
    """The value as a tree in which these pointers set every scalar."""
    if isinstance(value, Mapping):
        return {key: set_by(item, *pointers) for key, item in value.items()}
    if isinstance(value, list):
        return [set_by(item, *pointers) for item in value]
    return value if value is None else TracedScalar(value, pointers)


def plain(tree: TracedTree) -> Any:
    """The tree without its pointers."""
    if isinstance(tree, dict):
        return {key: plain(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [plain(item) for item in tree]
    return tree.value if isinstance(tree, TracedScalar) else tree


def scalars(tree: TracedTree, path: Path = ()) -> Iterator[tuple[Path, TracedScalar]]:
    """Every scalar with its path."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from scalars(item, (*path, key))
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from scalars(item, (*path, index))
    elif isinstance(tree, TracedScalar):
        yield path, tree


def origins(tree: TracedTree, base: Pointer) -> dict[Path, tuple[Pointer, ...]]:
    """The value of `Origin.set_by`: the scalars with another source than their own path under the
    base.
    """
    by_path = {}
    for path, scalar in scalars(tree):
        if scalar.set_by != (Pointer(base.file, base.document, base.path + path),):
            by_path[path] = scalar.set_by
    return by_path


def object_name(tree: TracedTree) -> str:
    """The name in the metadata of an object; empty without one."""
    metadata = tree.get("metadata")
    return str(plain(metadata.get("name")) or "") if isinstance(metadata, dict) else ""
