"""The archive of a support dump: its parts, redacted, within limits of size."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from gitops_ds.core import errors
from gitops_ds.core.redaction.patterns import HIDDEN
from gitops_ds.core.redaction.support_dump import Redactor
from gitops_ds.source.git import atomic_write

ROOT: Final = "gitops-ds-support"

# by file name: bytes are unchanged, a text or a document is redacted
Parts = dict[str, Any]


class DumpLimits(msgspec.Struct, frozen=True):
    """The limits of a file of the archive, of a log, and of all files together, in uncompressed
    bytes.
    """

    file: int = 16 << 20
    log: int = 2 << 20
    whole: int = 128 << 20


@dataclass(slots=True)
class Dump:
    """The parts, and as text the missing ones."""

    parts: Parts = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    async def read(self, what: str, reading: Awaitable[Parts]) -> None:
        """Adds the result of a read, or the error."""
        try:
            self.parts |= await reading
        except (errors.GitopsError, OSError) as error:
            self.missing.append(f"{what}: {error}")


def archive(dump: Dump, limits: DumpLimits, at: float) -> bytes:
    """The tar.gz, created at a time in seconds since 1970; the index of its parts, and of missing
    ones, comes first.
    """
    redactor, files, left = Redactor(), {}, []
    for part in dump.parts.values():
        redactor.learn(part)
    spent = 0
    for name, part in sorted(dump.parts.items()):
        data, cut = _written(redactor, part, limits.file)
        if spent + len(data) > limits.whole:
            left.append(f"{name}: omitted, the archive would exceed {limits.whole >> 20} MiB")
            continue
        left += [f"{name}: {cut}"] if cut else []
        files[name] = data
        spent += len(data)
    missing = [redactor.text(line) for line in dump.missing]
    return _packed({"README.txt": _readme(files, missing, left), **files}, at)


def _written(redactor: Redactor, part: Any, most: int) -> tuple[bytes, str]:
    """A part within its limit, and a note about omissions: the last items of a list, the first
    lines of a text.
    """
    if isinstance(part, str):
        data = redactor.text(part).encode()
        return (
            (data, "")
            if len(data) <= most
            else (data[-most:].partition(b"\n")[2], "older lines are omitted")
        )
    if not isinstance(part, list):
        data = _json(redactor.document(part))
        return (data, "") if len(data) <= most else (b"", "too large")
    lines: list[bytes] = []
    spent = 0
    # all lines at once, because most of them contain no secret
    for item in redactor.document(part):
        line = orjson.dumps(item)
        if spent + len(line) > most:
            break
        lines.append(line)
        spent += len(line) + 2
    cut = f"{len(lines)} of {len(part)} objects" if len(lines) < len(part) else ""
    return b'{"items": [\n' + b",\n".join(lines) + b"\n]}\n", cut


def _json(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n"


def _readme(files: Iterable[str], missing: list[str], left: list[str]) -> bytes:
    lines = [
        (
            "A support dump of gitops-ds. Read it before you send it: names of nodes, agents, "
            "repositories and people stay."
        ),
        f"Possible secrets are replaced by {HIDDEN}. No Secret was read.",
        "",
        "Files:",
        *(f"  {name}" for name in files),
        "",
        "Could not be read:",
        *(f"  {line}" for line in missing or ["nothing"]),
        "",
        "Omitted because of the size:",
        *(f"  {line}" for line in left or ["nothing"]),
    ]
    return ("\n".join(lines) + "\n").encode()


def _packed(files: Mapping[str, bytes], at: float) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=6) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{ROOT}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(at), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def write(file: Path, data: bytes) -> None:
    """Writes the archive, readable only by its owner.

    Raises UsageError for an existing file and for one that can't be written, Refused for a link.
    """
    try:
        atomic_write.create(file, data, 0o600)
    except OSError as error:
        raise errors.UsageError(
            f"--file {file}: {error.strerror}; nothing is overwritten"
        ) from None
