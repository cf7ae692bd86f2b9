"""Atomic writes to files in a user's directory, never through a symlink of a repository, which is
untrusted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gitops_ds.core import errors
from gitops_ds.core.sources.source_tree import Files
from gitops_ds.source.git import tree


def replace(file: Path, data: bytes) -> None:
    """Writes or replaces a file; a device or a pipe is written to.

    Raises Refused for a symlink inside a repository and for a file behind one, OSError if the write
    fails.
    """
    target = without_links(file)
    # /dev/stdout, or a link outside of any repository
    if target.is_symlink() or (target.exists() and not target.is_file()):
        target.write_bytes(data)
    else:
        _beside(target, data).replace(target)


def create(file: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a new file atomically. Raises Refused like `replace`, FileExistsError, and OSError."""
    _written(without_links(file), data, mode)


def without_links(file: Path) -> Path:
    """The absolute path. Raises Refused if it contains a symlink inside a repository or below the
    current directory.
    """
    whole = Path(os.path.abspath(file))  # noqa: PTH100  `resolve` would follow the links
    for step in _inside(whole):
        if step.is_symlink():
            problem = "is a symlink" if step == whole else f"is behind the symlink {step}"
            raise errors.Refused(
                f"{file} {problem}: files are not written through symlinks of a repository; name "
                "a file outside of it"
            )
    return whole


def _inside(whole: Path) -> Iterator[Path]:
    """The path and its parents below the outermost repository around it, or below the current
    directory.
    """
    here = Path.cwd()
    roots = [parent for parent in whole.parents if parent == here or (parent / ".git").exists()]
    if roots:
        below = whole.relative_to(roots[-1]).parts
        for count in range(len(below)):
            yield roots[-1].joinpath(*below[: count + 1])


def overwrite(directory: Path, path: str, contents: Files, expected: Files) -> None:
    """Replaces the content of files under `path` of the directory; `expected` is their content when
    they were read.

    Raises Refused for a symlink, a file behind one or outside of the tree, or one that has changed
    since, and SourceError if a write fails. On an error every file keeps its content.
    """
    root = (directory / tree.directory(path)).resolve()
    targets = {name: _target(root, name, expected[name]) for name in contents}
    written: dict[PurePosixPath, Path] = {}
    done: list[PurePosixPath] = []
    try:
        for name, target in targets.items():
            written[name] = _beside(target, contents[name])
        for name, target in targets.items():
            written[name].replace(target)
            done.append(name)
    except OSError as error:
        for name in done:
            _beside(targets[name], expected[name]).replace(targets[name])
        raise errors.SourceError(
            f"{error.filename or root} can't be written: {error.strerror}; no file was changed"
        ) from None
    finally:
        for name in written.keys() - set(done):
            written[name].unlink(missing_ok=True)


def _target(root: Path, name: PurePosixPath, expected: bytes) -> Path:
    target = root / name
    outside = (
        name.is_absolute() or ".." in name.parts or target.parent.resolve() != root / name.parent
    )
    try:
        if outside or not stat.S_ISREG(target.lstat().st_mode):
            raise errors.Refused(
                f"{name} is not a file of this directory, or is behind a symlink; no file was "
                "changed"
            )
        content = target.read_bytes()
    except OSError as error:
        raise errors.Refused(
            f"{name} can't be read: {error.strerror}; no file was changed"
        ) from None
    if content != expected:
        raise errors.Refused(
            f"{name} was modified in the meantime; no file was changed: run the command again"
        )
    return target


def _beside(target: Path, data: bytes) -> Path:
    """A new file in the same directory, synced to disk, with the target's mode, ready to replace
    it.
    """
    made = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}")
    _written(made, data, 0o666)
    try:
        if target.exists():
            made.chmod(stat.S_IMODE(target.stat().st_mode))
    except OSError:
        made.unlink()
        raise
    return made


def _written(made: Path, data: bytes, mode: int) -> None:
    """Creates the file, which must not exist, not even as a symlink."""
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            made.unlink()
        raise
