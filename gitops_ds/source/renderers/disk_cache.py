"""A cache of results on disk, by the hash of their inputs.

An entry is written to a temporary file and renamed. It begins with a seal over its name and
content, in a directory that only this user can write: truncated, modified or foreign entries are
ignored. With a secret the seal also authenticates the writer. The cache may be deleted at any time,
and its errors are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

_DAYS = 30
_DAY = 86_400
_SEAL = 64  # hexadecimal characters, and a line end


def key(*parts: str | bytes) -> str:
    """The hash of the parts in order, including their boundaries."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def read(directory: Path | None, key: str, secret: bytes = b"") -> bytes | None:
    """The content of the key; None for a missing or untrusted entry."""
    if directory is None or not _is_ours(directory):
        return None
    path = directory / key
    try:
        with path.open("rb") as file:
            seal, data = file.read(_SEAL + 1), file.read()
        if time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)
    except OSError:
        return None
    expected = _sealing(key, secret)
    expected.update(data)
    return data if hmac.compare_digest(seal, _written(expected)) else None


def write(
    directory: Path | None, key: str, data: bytes | Iterable[bytes], secret: bytes = b""
) -> None:
    """Writes an entry, the concatenated parts, and deletes entries not read for 30 days."""
    if directory is None:
        return
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(directory):
            return
        _clean(directory.iterdir())
        handle, name = tempfile.mkstemp(prefix="new-", dir=directory)
        seal = _sealing(key, secret)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(bytes(_SEAL + 1))
                for part in [data] if isinstance(data, bytes) else data:
                    seal.update(part)
                    file.write(part)
                file.seek(0)
                file.write(_written(seal))
            Path(name).replace(directory / key)
        except OSError:
            Path(name).unlink(missing_ok=True)


def _sealing(key: str, secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, key.encode(), "sha256")


def _written(seal: hmac.HMAC) -> bytes:
    return seal.hexdigest().encode() + b"\n"


def _is_ours(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o022
    )


def _clean(files: Iterable[Path]) -> None:
    oldest = time.time() - _DAYS * _DAY
    for file in files:
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
