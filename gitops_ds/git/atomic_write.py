"""Files written at a user's path: complete or not at all, and never through a link of a repository,
which may be a stranger's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gitops_ds import errors
from gitops_ds.git import tree
from gitops_ds.model.snapshot import Files


def replace(file: Path, data: bytes) -> None:
    """Writes a file, in place of an existing one; a device or a pipe is written to.

    Raises Refused for a link inside a repository, and for a file behind one, and OSError where the
    file can't be written.
    """
    target = without_links(file)
    # /dev/stdout, or a link outside of any repository
    if target.is_symlink() or (target.exists() and not target.is_file()):
        target.write_bytes(data)
    else:
        _beside(target, data).replace(target)


def create(file: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a new file, whole or not at all. Raises Refused as `replace`, FileExistsError for an
    existing file, and OSError.
    """
    _written(without_links(file), data, mode)


def without_links(file: Path) -> Path:
    """The absolute path. Raises Refused where a link inside a repository, or below the current
    directory, leads on the way.
    """
    whole = Path(os.path.abspath(file))  # noqa: PTH100  `resolve` would follow the links
    for step in _inside(whole):
        if step.is_symlink():
            behind = "is a link" if step == whole else f"lies behind the link {step}"
            raise errors.Refused(
                f"{file} {behind}: nothing is written through a link of a repository; name a file "
                "outside of it"
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


def overwrite(directory: Path, path: str, wanted: Files, known: Files) -> None:
    """Gives files under `path` of the directory new contents; `known` are those that they were read
    with.

    Raises Refused for a file that is a link, lies behind one or outside the tree, or holds
    something else by now, and SourceError where a file can't be written. Either way every file is
    as it was before.
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
        raise errors.SourceError(
            f"{error.filename or root} can't be written: {error.strerror}; no file was changed"
        ) from None
    finally:
        for name in written.keys() - set(done):
            written[name].unlink(missing_ok=True)


def _target(root: Path, name: PurePosixPath, known: bytes) -> Path:
    target = root / name
    outside = (
        name.is_absolute() or ".." in name.parts or target.parent.resolve() != root / name.parent
    )
    try:
        if outside or not stat.S_ISREG(target.lstat().st_mode):
            raise errors.Refused(
                f"{name} is no file of this directory, or lies behind a link: it is not written; "
                "nothing was changed"
            )
        content = target.read_bytes()
    except OSError as error:
        raise errors.Refused(
            f"{name} can't be read any more: {error.strerror}; nothing was changed"
        ) from None
    if content != known:
        raise errors.Refused(
            f"{name} was changed by somebody else meanwhile; nothing was changed: run the command "
            "again"
        )
    return target


def _beside(target: Path, data: bytes) -> Path:
    """A new file in the same directory, complete on disk and with the target's mode, ready to take
    its place.
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
    """Makes the file, which must not exist: not even as a link."""
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
