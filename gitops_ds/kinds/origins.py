"""Where a value of a rendered manifest was written: the answer is a pointer into the repository, and a place when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from gitops_ds.kinds import documents
from gitops_ds.model.bundle import Origin, Pointer
from gitops_ds.model.finding import Place
from gitops_ds.model.objects import Path
from gitops_ds.model.snapshot import Snapshot

KUSTOMIZATION = "kustomization.yaml"


def pointers(origin: Origin, path: Path) -> tuple[Pointer, ...]:
    """Everything that set the value at `path`, the winner first: what is said of the value or its nearest parent, else the base."""
    for length in range(len(path), -1, -1):
        found = origin.set_by.get(path[:length])
        if found:
            return tuple(Pointer(one.file, one.document, one.path + path[length:]) for one in found)
    return (Pointer(origin.base.file, origin.base.document, origin.base.path + path),)


def locate(origin: Origin, path: Path, files: Mapping[PurePosixPath, bytes], *, key: bool = False) -> Place:
    """The place of the line that must change for another value at `path`; with `key`, of the key that names it."""
    return locate_span(origin, path, files, key=key)[0]


def locate_span(origin: Origin, path: Path, files: Mapping[PurePosixPath, bytes], *, key: bool = False) -> tuple[Place, Place]:
    """As `locate`, and the place just after the last character. A file that isn't among `files` is answered as a whole."""
    pointer = pointers(origin, path)[0]
    data = files.get(PurePosixPath(pointer.file))
    if data is None:
        return Place(pointer.file), Place(pointer.file)
    return documents.span(pointer.file, data, pointer.document, pointer.path, key=key)


def sources(snapshot: Snapshot) -> Mapping[PurePosixPath, bytes]:
    """The files that a place can be shown in. What kustomize wrote is none of them: its kustomization.yaml answers as a whole."""
    written = {folder / KUSTOMIZATION for folder in snapshot.expanded} | set(snapshot.expanded)
    return {path: data for path, data in snapshot.files.items() if path not in written}
