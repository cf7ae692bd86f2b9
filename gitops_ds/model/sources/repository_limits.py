"""The limits of a repository: time, size and number of files."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class RepositoryLimits(msgspec.Struct, frozen=True):
    """Caps on one repository.

    `seconds` for each command of git, `bytes` for the pack of one fetch; `snapshot_bytes` for all
    files of a commit (None: by the memory limit), `files` for their number, `file_bytes` for one
    of them.
    """

    seconds: float = 120.0
    bytes: int = 512 * MIB
    files: int = 10_000
    file_bytes: int = 4 * MIB
    snapshot_bytes: int | None = None


DEFAULT = RepositoryLimits()
