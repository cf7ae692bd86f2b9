"""The accepted entries of a tree, with a finding for each refused one, and the files that are read.
Also used for a work tree's entries.

| rule | what | refused (not deployable) |
|---|---|---|
| SRC001 | a symbolic link | when its name ends in .yaml, .yml or .json, or it leads to a directory
of the tree with such a file |
| SRC002 | a submodule | always: a directory of that name would be read |
| SRC003 | a file over the cap | when its name ends in .yaml, .yml or .json |
| SRC004 | a name that is not a UTF-8 path inside the tree | when it ends in .yaml, .yml or .json |
| SRC005 | too many files that are read, or too many bytes of them in all | always, and no file is
taken |

Inside directories whose name begins with a dot nothing is refused (they are not read for
manifests), only reported.

Files that can be referenced are read: first manifests, files of our format, and files in the
folders of agents and charts; then files that kustomizations and agents reference. The size of other
files is not limited.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePosixPath
from typing import Final

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.finding import Finding, Place, RuleDefinition, Severity
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.source.render import kustomization
from gitops_ds.source.rules import (
    INVALID_FILE_NAME,
    LARGE_FILE,
    LARGE_REPOSITORY,
    SUBMODULE,
    SYMBOLIC_LINK,
)
from gitops_ds.source.sandbox import memory
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATIONS

_READ = (b".yaml", b".yml", b".json")
_LONGEST_TARGET = 4096  # PATH_MAX
_MOST_FINDINGS = 1000
MOST_ENTRIES = 250_000
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|[\u202a-\u202e\u2066-\u2069]")


class EntryKind(Enum):
    """The kind of an entry, by its mode."""

    FILE = "100"
    LINK = "120"
    SUBMODULE = "160"
    OTHER = "?"


_KINDS = {"100": EntryKind.FILE, "120": EntryKind.LINK, "160": EntryKind.SUBMODULE}


class TreeEntry(msgspec.Struct, frozen=True):
    """The name from git or the file system, the kind, the size in bytes, and the blob's id (empty
    in a work tree).
    """

    name: bytes
    kind: EntryKind
    size: int = 0
    id: str = ""
    mode: str = ""


class Sifted(msgspec.Struct, frozen=True):
    """The entries to read, each with its validated path, and the findings."""

    files: tuple[tuple[PurePosixPath, TreeEntry], ...]
    findings: tuple[Finding, ...]


def entries(pieces: Iterable[bytes]) -> Iterator[TreeEntry]:
    """The output of `git ls-tree -r -z -l`, in pieces of any length: `mode type id
    size<TAB>name<NUL>`.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\0")
        for line in lines:
            head, _, name = line.partition(b"\t")
            mode, _, id, size = head.decode("ascii").split()
            number = int(size) if size.isdigit() else 0
            yield TreeEntry(name, _KINDS.get(mode[:3], EntryKind.OTHER), number, id, mode)


def sift(
    entries: Sequence[TreeEntry],
    limits: RepositoryLimits,
    targets: Callable[[Sequence[TreeEntry]], Mapping[bytes, bytes]],
) -> Sifted:
    """Divides entries by the table above. `targets` reads the targets of symbolic links, by their
    names.
    """
    findings: list[Finding] = []
    files: list[tuple[PurePosixPath, TreeEntry]] = []
    open_links = [
        entry
        for entry in entries
        if entry.kind is EntryKind.LINK and entry.size <= _LONGEST_TARGET and _may_lead(entry)
    ]
    leads = targets(open_links) if open_links else {}
    folders = _folders_read(entries) if leads else frozenset()
    for entry in entries:
        path = plain_path(entry.name)
        if path is None:
            findings.append(_finding(INVALID_FILE_NAME, entry, is_read(entry.name), _NAME))
        elif entry.kind is EntryKind.FILE and entry.size > limits.file_bytes:
            message = (
                f"the file has {entry.size:,} bytes, more than the {limits.file_bytes:,} that are "
                "read; move it away"
            )
            findings.append(_finding(LARGE_FILE, entry, is_read(entry.name), message))
        elif entry.kind is EntryKind.FILE:
            files.append((path, entry))
        elif entry.kind is EntryKind.LINK:
            refused = is_read(entry.name) or (
                entry.name in leads and _end(entry, leads[entry.name]) in folders
            )
            findings.append(_finding(SYMBOLIC_LINK, entry, refused, _LINK))
        elif entry.kind is EntryKind.SUBMODULE:
            findings.append(_finding(SUBMODULE, entry, not _hidden(entry.name), _SUBMODULE))
        else:
            findings.append(_finding(INVALID_FILE_NAME, entry, is_read(entry.name), _ODD))
    return Sifted(tuple(files), _first(findings))


def _first(findings: list[Finding]) -> tuple[Finding, ...]:
    """Blocking findings first, if there are too many."""
    if len(findings) <= _MOST_FINDINGS:
        return tuple(findings)
    findings.sort(key=lambda finding: not finding.refused)
    message = (
        f"{len(findings) - _MOST_FINDINGS:,} more entries are not read; fix the listed ones, "
        "and check again"
    )
    more = Finding(
        INVALID_FILE_NAME.id, Severity.WARNING, message, refused=findings[_MOST_FINDINGS].refused
    )
    return (*findings[:_MOST_FINDINGS], more)


_NAME = (
    "the name is not a plain UTF-8 path inside the repository, so the file is not read; rename it"
)
_LINK = "a symbolic link is not followed; replace it by the file, or reference the file itself"
_SUBMODULE = (
    "a submodule is not read; put its files into this repository, or manage it as a repository of "
    "its own"
)
_ODD = "neither a file nor a directory, so it is not read; remove it"


def plain_path(name: bytes) -> PurePosixPath | None:
    """The name as a path, or None for an ambiguous one."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return None
    parts = text.split("/")
    if _UNSAFE.search(text) or any(p in {"", ".", ".."} or p.lower() == ".git" for p in parts):
        return None
    return PurePosixPath(text)


def directory(path: str) -> str:
    """A directory inside a repository in git's form, empty for the root. Raises UsageError for a
    path outside of it.
    """
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or any(ord(c) < 32 for c in path):
        raise errors.UsageError(
            f"the path {path!r} must be a directory inside the repository, without a leading / or "
            ".."
        )
    return "/".join(parts)


def _hidden(name: bytes) -> bool:
    return any(part.startswith(b".") for part in name.split(b"/")[:-1])


def is_read(name: bytes) -> bool:
    """Whether a file of this name is read for manifests."""
    return name.lower().endswith(_READ) and not _hidden(name)


def _may_lead(link: TreeEntry) -> bool:
    return not is_read(link.name) and not _hidden(link.name)


def _end(link: TreeEntry, target: bytes) -> bytes:
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.name), target))


def _folders_read(entries: Sequence[TreeEntry]) -> frozenset[bytes]:
    """The folders with a file that is read, at any depth."""
    folders = {b"."}
    for entry in entries:
        folder = posixpath.dirname(entry.name) if is_read(entry.name) else b""
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    return frozenset(folders)


def _finding(rule: RuleDefinition, entry: TreeEntry, refused: bool, message: str) -> Finding:
    place = Place(shown(entry.name))
    return rule.refusal(message, place) if refused else rule.warning(message, place)


def shown(name: bytes) -> str:
    """The printable name."""
    return "".join(
        c if c.isprintable() else f"\\x{ord(c):02x}"
        for c in name.decode("utf-8", "backslashreplace")
    )


NamedEntry = tuple[PurePosixPath, TreeEntry]
# A selection by path, before any content is read.
FileChoice = Callable[[Sequence[NamedEntry]], Iterable[NamedEntry]]

_IGNORE: Final = ".gitopsdsignore"
_SETTINGS: Final = "gitops-ds.yaml"


def manifests(candidates: Sequence[NamedEntry]) -> Iterator[NamedEntry]:
    """Files that are manifests by their name, or in an agent or a chart."""
    charts = {path.parent for path, _ in candidates if path.name == "Chart.yaml"}
    for path, entry in candidates:
        of_agent = len(path.parts) > 2 and path.parts[0] == "agents"
        by_name = is_read(entry.name) or path.name in (*KUSTOMIZATIONS, _IGNORE)
        if of_agent or by_name or (charts and not charts.isdisjoint(path.parents)):
            yield path, entry


def names_only(candidates: Sequence[NamedEntry]) -> Iterator[NamedEntry]:
    """The files with the name of the repository and its clusters."""
    for path, entry in candidates:
        if str(path) in (_SETTINGS, _IGNORE) or (
            len(path.parts) == 2 and path.parts[0] == "clusters" and path.suffix == ".yaml"
        ):
            yield path, entry


def files(
    sifted: Sifted,
    limits: RepositoryLimits,
    read: Callable[[Sequence[NamedEntry]], dict[PurePosixPath, bytes]],
    choice: FileChoice = manifests,
) -> tuple[dict[PurePosixPath, bytes], tuple[Finding, ...]]:
    """The files that are read, and the findings; no files if they exceed the limits of number or
    size.
    """
    first = list(choice(sifted.files))
    if (finding := _too_much(first, limits)) is not None:
        return {}, (*sifted.findings, finding)
    contents = read(first)
    if choice is not manifests:
        return contents, sifted.findings
    missing = [named for named in sifted.files if named[0] not in contents]
    second = _named_by(contents, missing) if missing else []
    if (finding := _too_much([*first, *second], limits)) is not None:
        return {}, (*sifted.findings, finding)
    return (contents | read(second) if second else contents), sifted.findings


def _named_by(
    contents: Mapping[PurePosixPath, bytes], candidates: Sequence[NamedEntry]
) -> list[NamedEntry]:
    """Files that kustomizations reference, and the archives of charts in an agent's source.yaml."""
    named = set(kustomization.named_files(contents))
    archives = {path: entry for path, entry in candidates if path.suffix == ".tgz"}
    sources = (
        [data for path, data in contents.items() if path.name == "source.yaml"] if archives else []
    )
    named |= {path for path in archives if any(path.name.encode() in data for data in sources)}
    return [(path, entry) for path, entry in candidates if path in named]


def _too_much(entries: Sequence[NamedEntry], limits: RepositoryLimits) -> Finding | None:
    most = memory.here().snapshot if limits.snapshot_bytes is None else limits.snapshot_bytes
    total = sum(entry.size for _, entry in entries)
    if len(entries) <= limits.files and total <= most:
        return None
    largest = max(entries, key=lambda named: named[1].size)
    message = (
        f"{len(entries):,} files with {total:,} bytes are more than the {limits.files:,} files or "
        f"{most:,} bytes that are read "
        f"(the largest is {shown(largest[1].name)} with {largest[1].size:,}); name a smaller "
        "directory (repository.path) or "
        "raise repository.limits"
    )
    return LARGE_REPOSITORY.refusal(message)
