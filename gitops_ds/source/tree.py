"""The entries of a tree that we take, and a finding for each that we refuse. Pure; also used for a work tree's entries.

| rule | what | refused (not deployable) |
|---|---|---|
| SRC001 | a symbolic link | when its name ends in .yaml, .yml or .json, or it leads to a directory of the tree with such a file |
| SRC002 | a submodule | always: it stands where a directory would be read |
| SRC003 | a file over the cap | when its name ends in .yaml, .yml or .json |
| SRC004 | a name that is no plain UTF-8 path inside the tree | when it ends in .yaml, .yml or .json |
| SRC005 | too many files, or too many bytes in all | always, and no file is taken |

Inside directories whose name begins with a dot nothing is refused (they are not read for manifests), only reported.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from gitops_ds import errors
from gitops_ds.model.finding import Finding, Place, Severity
from gitops_ds.source.limits import Limits

_READ = (b".yaml", b".yml", b".json")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|[\u202a-\u202e\u2066-\u2069]")


class Kind(Enum):
    """What an entry is, by its mode."""

    FILE = "100"
    LINK = "120"
    SUBMODULE = "160"
    OTHER = "?"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name as git or the file system gives it, what it is, its size in bytes, and the blob's id (empty in a work tree)."""

    name: bytes
    kind: Kind
    size: int = 0
    id: str = ""
    mode: str = ""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The entries to be read, each with its checked path, and what was found on the way."""

    wanted: tuple[tuple[PurePosixPath, Entry], ...]
    findings: tuple[Finding, ...]


def entries(listing: bytes) -> list[Entry]:
    """The output of `git ls-tree -r -z -l`: `mode type id size<TAB>name<NUL>`."""
    result = []
    for line in listing.split(b"\0"):
        if line:
            head, _, name = line.partition(b"\t")
            mode, _, id, size = head.decode("ascii").split()
            kinds = {"100": Kind.FILE, "120": Kind.LINK, "160": Kind.SUBMODULE}
            number = int(size) if size.isdigit() else 0
            result.append(Entry(name, kinds.get(mode[:3], Kind.OTHER), number, id, mode))
    return result


def sift(found: Sequence[Entry], limits: Limits, target: Callable[[Entry], bytes]) -> Sifted:
    """Divides entries by the table above. `target` reads what a symbolic link points at."""
    findings: list[Finding] = []
    wanted: list[tuple[PurePosixPath, Entry]] = []
    for entry in found:
        path = plain_path(entry.name)
        if path is None:
            findings.append(_finding("SRC004", entry, _is_read(entry.name), _NAME))
        elif entry.kind is Kind.FILE and entry.size > limits.file_bytes:
            said = f"the file has {entry.size:,} bytes, more than the {limits.file_bytes:,} that are read; move it away"
            findings.append(_finding("SRC003", entry, _is_read(entry.name), said))
        elif entry.kind is Kind.FILE:
            wanted.append((path, entry))
        elif entry.kind is Kind.LINK:
            refused = _is_read(entry.name) or (not _hidden(entry.name) and _leads_to_read(entry, target(entry), found))
            findings.append(_finding("SRC001", entry, refused, _LINK))
        elif entry.kind is Kind.SUBMODULE:
            findings.append(_finding("SRC002", entry, not _hidden(entry.name), _SUBMODULE))
        else:
            findings.append(_finding("SRC004", entry, _is_read(entry.name), _ODD))
    total = sum(e.size for _, e in wanted)
    if len(wanted) > limits.files or total > limits.bytes:
        said = (
            f"{len(wanted):,} files with {total:,} bytes are more than the {limits.files:,} files or {limits.bytes:,} bytes "
            "that are read; name a smaller directory (repository.path) or raise repository.limits"
        )
        return Sifted((), (*findings, Finding("SRC005", Severity.ERROR, said, refused=True)))
    return Sifted(tuple(wanted), tuple(findings))


_NAME = "the name is not a plain UTF-8 path inside the repository, so the file is not read; rename it"
_LINK = "a symbolic link is not followed; put the file itself here, or name it where it is"
_SUBMODULE = "a submodule is not read; put its files into this repository, or manage it as a repository of its own"
_ODD = "neither a file nor a directory, so it is not read; remove it"


def plain_path(name: bytes) -> PurePosixPath | None:
    """The name as a path, or None where it could mean something else than it says."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return None
    parts = text.split("/")
    if _UNSAFE.search(text) or any(p in {"", ".", ".."} or p.lower() == ".git" for p in parts):
        return None
    return PurePosixPath(text)


def directory(path: str) -> str:
    """A directory inside a repository as git takes it, empty for the root; UsageError for one that leads out."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or any(ord(c) < 32 for c in path):
        raise errors.UsageError(f"the path {path!r} must be a directory inside the repository, without a leading / or ..")
    return "/".join(parts)


def _hidden(name: bytes) -> bool:
    return any(part.startswith(b".") for part in name.split(b"/")[:-1])


def _is_read(name: bytes) -> bool:
    return name.lower().endswith(_READ) and not _hidden(name)


def _leads_to_read(link: Entry, target: bytes, found: Sequence[Entry]) -> bool:
    end = posixpath.normpath(posixpath.join(posixpath.dirname(link.name), target))
    inside = b"" if end == b"." else end + b"/"
    return any(e.name.startswith(inside) and _is_read(e.name) for e in found)


def _finding(rule: str, entry: Entry, refused: bool, message: str) -> Finding:
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in entry.name.decode("utf-8", "backslashreplace"))
    return Finding(rule, Severity.ERROR if refused else Severity.WARNING, message, Place(shown), refused=refused)
