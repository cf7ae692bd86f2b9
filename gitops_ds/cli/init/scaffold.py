"""A small valid repository as a start: the files of repository/, which are only written if none of
them exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from gitops_ds import __version__
from gitops_ds.core import errors
from gitops_ds.source.git import atomic_write

# a name that begins with a dot would be skipped here, and by packaging tools
_HIDDEN = "dot-"
_VERSION = "@VERSION@"


def files() -> Mapping[PurePosixPath, str]:
    """The text of every file of the repository, by its path."""
    return dict(
        sorted(_files(resources.files("gitops_ds.cli.init") / "repository", PurePosixPath()))
    )


def _files(folder: Traversable, at: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in folder.iterdir():
        name = entry.name.replace(_HIDDEN, ".", 1) if entry.name.startswith(_HIDDEN) else entry.name
        if entry.is_dir():
            yield from _files(entry, at / name)
        else:
            yield at / name, entry.read_text("utf-8").replace(_VERSION, __version__)


def write(directory: Path, files: Mapping[PurePosixPath, str]) -> tuple[PurePosixPath, ...]:
    """Writes every file (by path its text), and returns their paths.

    Raises Refused if one of them exists or is behind a link, UsageError if the directory can't be
    written. Then no file is written.
    """
    there = [
        str(path)
        for path in files
        if (directory / path).is_symlink() or (directory / path).exists()
    ]
    if there:
        raise errors.Refused(
            f"{directory} has {', '.join(there)} already: nothing was written; name an empty "
            "directory"
        )
    made: list[Path] = []
    try:
        for path, text in files.items():
            _make_directory(atomic_write.without_links(directory / path).parent, made)
            atomic_write.create(directory / path, text.encode())
            made.append(directory / path)
    except errors.Refused:
        _take_back(made)
        raise
    except OSError as error:
        _take_back(made)
        raise errors.UsageError(
            f"{error.filename or directory}: {error.strerror}; nothing was written"
        ) from None
    return tuple(files)


def _make_directory(directory: Path, made: list[Path]) -> None:
    if not directory.is_dir():
        _make_directory(directory.parent, made)
        directory.mkdir()
        made.append(directory)


def _take_back(made: list[Path]) -> None:
    for path in reversed(made):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
