"""How much of a repository we take before we say no."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class RepositoryLimits:
    """Caps on one repository.

    `seconds` for each command of git; `bytes` for what one fetch may bring (its pack);
    `snapshot_bytes` for all files that are read of a commit together (None: by the memory that
    there is), `files` for their number, `file_bytes` for one of them.
    """

    seconds: float = 120.0
    bytes: int = 512 * MIB
    files: int = 10_000
    file_bytes: int = 4 * MIB
    snapshot_bytes: int | None = None


DEFAULT = RepositoryLimits()
