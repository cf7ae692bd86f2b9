"""Snapshots for tests: of a folder on disk, and of texts."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gitops_ds.model.snapshot import Snapshot


def of_folder(root: Path) -> Snapshot:
    """The files below a folder."""
    files = {
        PurePosixPath(p.relative_to(root).as_posix()): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }
    return Snapshot(None, files)


def of(**texts: str) -> Snapshot:
    """A snapshot of texts by path; a keyword's `__` stands for a slash and `_DOT_` for a dot."""
    return of_texts(
        {name.replace("__", "/").replace("_DOT_", "."): text for name, text in texts.items()}
    )


def of_texts(texts: dict[str, str]) -> Snapshot:
    """A snapshot of texts by path."""
    return Snapshot(None, {PurePosixPath(name): text.encode() for name, text in texts.items()})
