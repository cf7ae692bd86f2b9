"""Converts a `Mend`, a step in a rendered object, to edits of the source files of the object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from gitops_ds.core.finding import Finding, Mend
from gitops_ds.core.objects import MISSING, Path, value_at
from gitops_ds.core.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.yaml import parser
from gitops_ds.yaml.edit import Edit
from gitops_ds.yaml.provenance import lookup

FileEdit = tuple[PurePosixPath, Edit]


class Sources:
    """The source files of a snapshot, each parsed once."""

    def __init__(self, snapshot: SourceTree) -> None:
        self._files = lookup.sources(snapshot)
        self._values: dict[str, dict[int, Any]] = {}

    def value(self, pointer: Pointer) -> Any:
        """The value at a place; `MISSING` without a value, or without a writable file."""
        if pointer.file not in self._values:
            data = self._files.get(PurePosixPath(pointer.file), b"")
            self._values[pointer.file] = {
                document.index: document.value
                for document in parser.read(pointer.file, data).documents
            }
        return value_at(self._values[pointer.file].get(pointer.document, MISSING), pointer.path)

    def in_document(self, finding: Finding, mends: Sequence[Mend]) -> list[FileEdit] | None:
        """The edits of a finding about a file itself; its paths are those of its document."""
        file = PurePosixPath(finding.place.file) if finding.place else None
        if file is None or file not in self._files:
            return None
        data = self._files[file]
        for document in parser.read(str(file), data).documents:
            if parser.place(str(file), data, document.index, finding.path) == finding.place:
                return [
                    (file, Edit(document.index, mend.path, mend.value, mend.key)) for mend in mends
                ]
        return None


def edits(manifest: Manifest, mends: Sequence[Mend], sources: Sources) -> list[FileEdit] | None:
    """The edits for the mends; None if no single place has the rendered value.

    A text with parameters has no such place, nor has a list with parts of two files.
    """
    all_edits: list[FileEdit] = []
    for mend in mends:
        some = _rename(manifest, mend, sources) if mend.key else _steps(manifest, mend, sources)
        if some is None:
            return None
        all_edits += some
    return all_edits


def _rename(manifest: Manifest, mend: Mend, sources: Sources) -> list[FileEdit] | None:
    if value_at(manifest.body, mend.path) is MISSING:
        return []
    home = _home(manifest, mend.path[:-1], sources)
    if home is None or sources.value(_below(home, mend.path[-1:])) is MISSING:
        return None
    return [_edit(_below(home, mend.path[-1:]), key=mend.key)]


def _steps(manifest: Manifest, mend: Mend, sources: Sources) -> list[FileEdit] | None:
    steps = []
    for path, value in _differences(mend.path, value_at(manifest.body, mend.path), mend.value):
        if value is None:
            one = _removal(manifest, path, sources)
        elif value_at(manifest.body, path) in (MISSING, None):
            one = _addition(manifest, path, value, sources)
        else:
            one = _replacement(manifest, path, value, sources)
        if one is None:
            return None
        steps.append(one)
    return steps


def _differences(path: Path, old: Any, new: Any) -> Iterator[tuple[Path, Any]]:
    """The smallest differences to write: an added item does not replace the list."""
    if old is MISSING and new is None:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _differences((*path, key), old.get(key, MISSING), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences((*path, index), before, after)
    elif isinstance(old, list) and isinstance(new, list):
        kept = 0
        for index, item in enumerate(old):
            if kept < len(new) and item == new[kept]:
                kept += 1
            else:
                yield (*path, index), None
        yield from (((*path, len(old) + index), item) for index, item in enumerate(new[kept:]))
    elif old is MISSING or old != new:
        yield path, new


def _removal(manifest: Manifest, path: Path, sources: Sources) -> FileEdit | None:
    pointer = _literal(manifest, path, sources)
    # A parameter's value is not at the path: its removal would leave the reference without a value.
    own = pointer is not None and (pointer.path[-1:] == path[-1:] or isinstance(path[-1], int))
    return _edit(pointer) if pointer is not None and own else None


def _replacement(manifest: Manifest, path: Path, value: Any, sources: Sources) -> FileEdit | None:
    pointer = _literal(manifest, path, sources)
    return None if pointer is None else _edit(pointer, value)


def _addition(manifest: Manifest, path: Path, value: Any, sources: Sources) -> FileEdit | None:
    depth = len(path) - 1
    while value_at(manifest.body, path[:depth]) in (MISSING, None):
        depth -= 1
    home, rest = _home(manifest, path[:depth], sources), path[depth:]
    if home is None:
        return None
    around, there = value_at(manifest.body, path[:depth]), sources.value(home)
    if isinstance(around, list):
        if not isinstance(there, list) or not isinstance(rest[0], int):
            return None
        rest = (rest[0] - len(around) + len(there), *rest[1:])
    elif value_at(there, rest[:1]) not in (MISSING, None):
        return None
    return _edit(_below(home, rest), value)


def _literal(manifest: Manifest, path: Path, sources: Sources) -> Pointer | None:
    """The single place with the rendered value."""
    value = value_at(manifest.body, path)
    places = [_place(manifest.origin, path, below) for below in _leaves(value)] or [
        _base(manifest.origin, path)
    ]
    first = places[0]
    same = first is not None and all(place == first for place in places)
    return first if same and first is not None and sources.value(first) == value else None


def _home(manifest: Manifest, path: Path, sources: Sources) -> Pointer | None:
    """The place of the mapping or list: in the base, if several files have parts of it."""
    value, base = value_at(manifest.body, path), manifest.origin.base
    places = [place for below in _leaves(value) if (place := _place(manifest.origin, path, below))]
    in_base = [
        place for place in places if (place.file, place.document) == (base.file, base.document)
    ]
    for place in dict.fromkeys((*in_base, *places, _base(manifest.origin, path))):
        if isinstance(sources.value(place), type(value)):
            return place
    return None


def _base(origin: Origin, path: Path) -> Pointer:
    return _below(origin.base, path)


def _place(origin: Origin, path: Path, below: Path) -> Pointer | None:
    """The place of the value at `path`, by the source of one of its scalars."""
    pointer = lookup.pointers(origin, path + below)[0]
    cut = len(pointer.path) - len(below)
    # a line of a chart's template; a parameter in a list's entry
    if pointer.line or cut < 0 or pointer.path[cut:] != below:
        return None
    return Pointer(pointer.file, pointer.document, pointer.path[:cut])


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    elif value is not None:
        yield path


def _below(pointer: Pointer, path: Path) -> Pointer:
    return Pointer(pointer.file, pointer.document, pointer.path + path)


def _edit(pointer: Pointer, value: Any = None, key: str = "") -> FileEdit:
    return PurePosixPath(pointer.file), Edit(pointer.document, pointer.path, value, key, make=True)
