"""The source of a value in a rendered manifest: a pointer into the repository, resolved to a place
on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath

from gitops_ds.core.finding import Place
from gitops_ds.core.objects import Path
from gitops_ds.core.sources.bundle import Origin, Pointer
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.yaml import parser

KUSTOMIZATIONS = (KUSTOMIZATION := "kustomization.yaml", "kustomization.yml", "Kustomization")


def pointers(origin: Origin, path: Path) -> tuple[Pointer, ...]:
    """All sources of the value at `path`, the effective one first: those of the value or its
    nearest parent, else the base.
    """
    for length in range(len(path), -1, -1) if origin.set_by else ():
        sources = origin.set_by.get(path[:length])
        if sources:
            return tuple(source.below(path[length:]) for source in sources)
    return (origin.base.below(path),)


def locate(
    origin: Origin, path: Path, files: Mapping[PurePosixPath, bytes], *, key: bool = False
) -> Place:
    """The place of the line that must change for another value at `path`; with `key`, of the key
    that names it.
    """
    return locate_span(origin, path, files, key=key)[0]


def locate_span(
    origin: Origin, path: Path, files: Mapping[PurePosixPath, bytes], *, key: bool = False
) -> tuple[Place, Place]:
    """As `locate`, and the place just after the last character. For a file outside `files` the
    place is the whole file.
    """
    pointer = pointers(origin, path)[0]
    data = files.get(_path(pointer.file))
    if data is None:
        return Place(pointer.file), Place(pointer.file)
    return span(pointer, data, key=key)


@lru_cache(maxsize=4)  # a file often has several findings
def _path(file: str) -> PurePosixPath:
    return PurePosixPath(file)


def span(pointer: Pointer, data: bytes, *, key: bool = False) -> tuple[Place, Place]:
    """The place of a pointer's value in the bytes of its file, and the place just after it; in a
    template, the text of the line.
    """
    if not pointer.line:
        return parser.span(pointer.file, data, pointer.document, pointer.path, key=key)
    text = data.split(b"\n")[pointer.line - 1].decode("utf-8", "replace").rstrip()
    start = len(text) - len(text.lstrip()) + 1
    return Place(pointer.file, pointer.line, start), Place(
        pointer.file, pointer.line, len(text) + 1
    )


def sources(snapshot: SourceTree) -> Mapping[PurePosixPath, bytes]:
    """The files for places. The kustomization.yaml replaces the output of kustomize."""
    written = {folder / KUSTOMIZATION for folder in snapshot.expanded} | set(snapshot.expanded)
    return {path: data for path, data in snapshot.files.items() if path not in written}
