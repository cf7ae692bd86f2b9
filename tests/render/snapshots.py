"""Snapshots for tests: of a folder on disk, and of texts."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gitops_ds.core.sources.source_tree import SourceTree


def of_folder(root: Path) -> SourceTree:
    """The files below a folder."""
    files = {
        PurePosixPath(p.relative_to(root).as_posix()): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }
    return SourceTree(None, files)


def of(**texts: str) -> SourceTree:
    """A snapshot of texts by path; in a keyword `__` is a slash and `_DOT_` a dot."""
    return of_texts(
        {name.replace("__", "/").replace("_DOT_", "."): text for name, text in texts.items()}
    )


def of_texts(texts: dict[str, str]) -> SourceTree:
    """A snapshot of texts by path."""
    return SourceTree(None, {PurePosixPath(name): text.encode() for name, text in texts.items()})
