"""The source of each value in the output of kustomize: a manifest, or a patch.

kustomize does not report sources. So a value has a place only if an input file has the same value
at the same path of an object of the same kind, with a name that kustomize could have changed to
this one. Other values have the place of their nearest parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core.objects import Path
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.core.sources.source_tree import Files, Places
from gitops_ds.core.values import replace
from gitops_ds.yaml import parser

# A limit on comparisons, so that they never take longer than the build.
_MOST_PAIRS = 100_000
_MOST_ITEMS = 200


class _Written(msgspec.Struct, frozen=True):
    """A value in a file."""

    value: Any
    at: Pointer

    def below(self, step: str | int) -> _Written:
        return _Written(self.value[step], replace(self.at, path=(*self.at.path, step)))


def placed(
    output: bytes,
    resources: Iterable[PurePosixPath],
    patches: Iterable[PurePosixPath],
    files: Files,
) -> Mapping[int, Places]:
    """The places of the values of each document of kustomize's output; none if no or several files
    could have the object.
    """
    bases = [document for file in resources for document in _read(file, files)]
    changes = [document for file in patches for document in _read(file, files)]
    by_document: dict[int, Places] = {}
    made = parser.read("", output).documents
    if len(made) * (len(bases) + len(changes)) > _MOST_PAIRS:
        return by_document
    for document in made:
        own = _same_object(document.value, bases)
        exact = [change for change in own if _name(change.value) == _name(document.value)]
        candidates = exact or own
        if len(candidates) == 1:
            base = candidates[0]
            changed = [
                change
                for change in _same_object(document.value, changes)
                if _name(change.value) == _name(base.value)
            ]
            places: dict[Path, tuple[Pointer, ...]] = {(): (base.at,)}
            _lay(document.value, [*reversed(changed), base], (), places)
            by_document[document.index] = places
    return by_document


def _read(file: PurePosixPath, files: Files) -> list[_Written]:
    name = str(file)
    return [
        _Written(each.value, Pointer(name, each.index, ()))
        for each in parser.read(name, files.get(file, b"")).documents
    ]


def _same_object(value: Any, among: Sequence[_Written]) -> list[_Written]:
    """The objects of the same kind whose name is contained in this one's, as prefixes and suffixes
    do.
    """
    if not isinstance(value, Mapping):
        return []
    return [
        document
        for document in among
        if isinstance(document.value, Mapping)
        and document.value.get("kind") == value.get("kind")
        and (_name(document.value) or " ") in _name(value)
    ]


def _name(value: Any) -> str:
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def _lay(
    value: Any, written: Sequence[_Written], path: Path, places: dict[Path, tuple[Pointer, ...]]
) -> None:
    steps: Iterable[str | int] = (
        value
        if isinstance(value, Mapping)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for step in steps:
        item = value[step]
        below = [
            pointer.below(at)
            for pointer in written
            if (at := _step(value, step, pointer.value)) is not None
        ]
        if isinstance(item, Mapping | list):
            alike = [
                pointer.at
                for pointer in reversed(below)
                if isinstance(pointer.value, Mapping | list)
            ]
        else:
            alike = [
                pointer.at
                for pointer in below
                if pointer.value == item and type(pointer.value) is type(item)
            ]
        if alike:
            places[*path, step] = tuple(alike)
        _lay(item, below, (*path, step), places)


def _step(value: Any, step: str | int, other: Any) -> str | int | None:
    """The step in the other value for the step in this one: the same key, name or number."""
    if isinstance(value, Mapping):
        return step if isinstance(other, Mapping) and step in other else None
    if not isinstance(other, list) or not isinstance(step, int):
        return None
    if max(len(value), len(other)) > _MOST_ITEMS:
        return step if len(value) == len(other) else None
    item = value[step]
    if isinstance(item, Mapping) and "name" in item:
        named = [
            at
            for at, one in enumerate(other)
            if isinstance(one, Mapping) and one.get("name") == item["name"]
        ]
        return named[0] if len(named) == 1 else None
    equal = [at for at, one in enumerate(other) if one == item]
    if len(equal) == 1:
        return equal[0]
    return step if len(value) == len(other) else None
