"""The user's working directory, read as a snapshot without a commit.

In a Git work tree these are the tracked files and the untracked ones that are not ignored;
elsewhere all files outside `.git`. The refusals are those of a commit (`tree`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from gitops_ds.core import errors
from gitops_ds.core.sources.repository_limits import DEFAULT, RepositoryLimits
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source.git import tree
from gitops_ds.source.git.tree import EntryKind, TreeEntry


def find_work_tree(path: Path) -> Path | None:
    """The root of the Git work tree that the path is in, or None."""
    start = path.resolve()
    return next((d for d in (start, *start.parents) if (d / ".git").exists()), None)


def tracks(root: Path, directory: Path) -> bool:
    """Whether the work tree has committed or added files in a directory below it; blocking.

    A tracked directory that looks like a bare repository is content of the work tree, and must not
    be opened as a repository. Raises SourceError if git fails.
    """
    return bool(_ls_files(root, "--cached", "--", directory.relative_to(root).as_posix()))


def snapshot(directory: Path, path: str = "", limits: RepositoryLimits = DEFAULT) -> SourceTree:
    """The present files under `path` of the directory; blocking.

    Raises SourceError if the directory can't be read. A file that is deleted meanwhile is omitted.
    """
    root = directory / tree.directory(path)
    if not root.is_dir():
        raise errors.RevisionUnknown(f"{root} is not a directory; name one with manifests")
    try:
        entries = list(_entries(root, limits))
        base = os.fsencode(root)
        sifted = tree.sift(
            entries,
            limits,
            lambda links: {
                link.name: os.readlink(_file(base, link))  # noqa: PTH115  bytes
                for link in links
            },
        )
        files, findings = tree.files(sifted, limits, lambda chosen: dict(_contents(root, chosen)))
    except OSError as error:
        raise errors.SourceError(
            f"{error.filename or root} can't be read: {error.strerror}"
        ) from None
    return SourceTree(None, files, findings)


def _file(base: bytes, entry: TreeEntry) -> bytes:
    return os.path.join(base, entry.name)  # noqa: PTH118  names are bytes


def _contents(
    root: Path, entries: Sequence[tree.NamedEntry]
) -> Iterator[tuple[PurePosixPath, bytes]]:
    base = os.fsencode(root)
    for path, entry in entries:
        try:
            # A symlink that replaced the file after the listing must not be followed.
            descriptor = os.open(_file(base, entry), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        try:
            yield path, _read(descriptor, entry.size)
        finally:
            os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _entries(root: Path, limits: RepositoryLimits) -> Iterator[TreeEntry]:
    names = _listed(root, limits) if find_work_tree(root) else sorted(_walked(root))
    base, led_away = os.fsencode(root), {b"": False}
    for name in names:
        # git still lists the files of a folder that a symlink has replaced: they would be read from
        # its target.
        entry = (
            None
            if _is_below_link(
                base,
                os.path.dirname(name.rstrip(b"/")),  # noqa: PTH120  bytes
                led_away,
            )
            else _entry(base, name)
        )
        if entry is not None:
            yield entry


def _is_below_link(base: bytes, folder: bytes, links: dict[bytes, bool]) -> bool:
    if folder not in links:
        above = _is_below_link(base, os.path.dirname(folder), links)  # noqa: PTH120  names are bytes
        links[folder] = above or os.path.islink(os.path.join(base, folder))  # noqa: PTH114, PTH118  names are bytes
    return links[folder]


def _entry(base: bytes, name: bytes) -> TreeEntry | None:
    try:
        status = os.lstat(os.path.join(base, name))  # noqa: PTH118  names are bytes
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(status.st_mode):
        return TreeEntry(name, EntryKind.FILE, status.st_size)
    if stat.S_ISLNK(status.st_mode):
        return TreeEntry(name, EntryKind.LINK)
    # git lists a submodule, and a repository in the repository, as a directory.
    return TreeEntry(
        name.rstrip(b"/"), EntryKind.SUBMODULE if stat.S_ISDIR(status.st_mode) else EntryKind.OTHER
    )


def _listed(root: Path, limits: RepositoryLimits) -> list[bytes]:
    """Tracked files and untracked ones that are not ignored, relative to the root."""
    return sorted(
        set(_ls_files(root, "--cached", "--others", "--exclude-standard", seconds=limits.seconds))
    )


def _ls_files(root: Path, *words: str, seconds: float = DEFAULT.seconds) -> list[bytes]:
    """The names that `git ls-files` lists there."""
    import git  # slow to import, and needed in a work tree of Git only

    from gitops_ds.source.git import error_messages, hardening

    runner = hardening.HardenedGit(root)
    runner.update_environment(**hardening.desk())
    command = ["git", "ls-files", "-z", *words]
    try:
        listing = runner.execute(
            command,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
            kill_after_timeout=seconds,
        )
    except git.GitCommandNotFound:
        raise errors.SourceError("git is not installed; install git 2.39 or newer") from None
    except git.GitCommandError as error:
        stderr = error.stderr.strip().removeprefix("stderr:").strip(" '")
        raise error_messages.translate(
            error_messages.CommandFailure("read", str(root), stderr, str(root), seconds)
        ) from None
    return [name for name in listing.split(b"\0") if name]


def _walked(root: Path) -> Iterator[bytes]:
    base = os.fsencode(root)
    for where, directories, names in os.walk(base):
        # A symlink to a directory is listed as a directory, but not walked.
        links = [d for d in directories if os.path.islink(os.path.join(where, d))]  # noqa: PTH114, PTH118  names are bytes
        directories[:] = [d for d in directories if d != b".git"]
        for name in (*names, *links):
            yield os.path.join(where, name)[len(base) :].lstrip(b"/")  # noqa: PTH118  names are bytes
