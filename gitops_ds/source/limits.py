"""How much of a repository we take before we say no."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one repository.

    `seconds` for each command of git; `bytes` for what one fetch may bring (its pack) and for all files of a snapshot together;
    `files` for the number of files in a snapshot; `file_bytes` for one file.
    """

    seconds: float = 120.0
    bytes: int = 512 * MIB
    files: int = 10_000
    file_bytes: int = 4 * MIB


DEFAULT = Limits()
