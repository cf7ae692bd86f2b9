"""Files of a work tree written over: all of them or none, each at once, with its mode, and never through a link."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gitops_ds import errors
from gitops_ds.source import tree

Files = Mapping[PurePosixPath, bytes]


def overwrite(directory: Path, path: str, wanted: Files, known: Files) -> None:
    """Gives files under `path` of the directory new contents; `known` are those that they were read with.

    Raises Refused for a file that is a link, lies behind one or outside the tree, or holds something else by now, and SourceError
    where a file can't be written. Either way every file is as it was before.
    """
    root = (directory / tree.directory(path)).resolve()
    targets = {name: _target(root, name, known[name]) for name in wanted}
    written: dict[PurePosixPath, Path] = {}
    done: list[PurePosixPath] = []
    try:
        for name, target in targets.items():
            written[name] = _beside(target, wanted[name])
        for name, target in targets.items():
            written[name].replace(target)
            done.append(name)
    except OSError as error:
        for name in done:
            _beside(targets[name], known[name]).replace(targets[name])
        raise errors.SourceError(f"{error.filename or root} can't be written: {error.strerror}; no file was changed") from None
    finally:
        for name in written.keys() - set(done):
            written[name].unlink(missing_ok=True)


def _target(root: Path, name: PurePosixPath, known: bytes) -> Path:
    target = root / name
    outside = name.is_absolute() or ".." in name.parts or target.parent.resolve() != root / name.parent
    try:
        if outside or not stat.S_ISREG(target.lstat().st_mode):
            raise errors.Refused(
                f"{name} is no file of this directory, or lies behind a link: it is not written; nothing was changed"
            )
        content = target.read_bytes()
    except OSError as error:
        raise errors.Refused(f"{name} can't be read any more: {error.strerror}; nothing was changed") from None
    if content != known:
        raise errors.Refused(f"{name} was changed by somebody else meanwhile; nothing was changed: run the command again")
    return target


def _beside(target: Path, data: bytes) -> Path:
    """A new file in the same directory, complete on disk and with the target's mode, ready to take its place."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", dir=target.parent)
    made = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            made.unlink()
        raise
    return made
