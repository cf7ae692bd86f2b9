"""The memory for the work on a repository: shares of the limit of the pod's cgroup."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from gitops_ds.core.sources.repository_limits import MIB

VARIABLE: Final = "GITOPS_DS_MEMORY_LIMIT"  # bytes
_ROOT = Path("/")
# cgroup v1 writes "no limit" as a number near 2**63, rounded to pages.
_NO_LIMIT = 1 << 60
_SMALLEST = 256 * MIB  # less cannot be divided: helm alone needs 96 MiB


class Budget(msgspec.Struct, frozen=True):
    """Shares in bytes: for the process that prepares a commit, for each program that renders, for
    git in its turn.

    `fetch` is for each of the four processes of a fetch: with 512 MiB for 300,000 objects.

    `read` is for a git command that reads the local copy, `connect` for each of the two processes
    of one that connects to a server. Each repository may use one of them at any time, outside the
    turns: the limit of the pod must include them.

    `snapshot` is for all files of a commit that are read, `answers` for the results of all
    repositories together. `programs` is the number of concurrent renderers, `fetches` that of
    concurrent fetches. If all use their shares, a fifth of a pod's limit remains for the service
    itself.
    """

    worker: int
    program: int
    git: int
    fetch: int
    read: int
    connect: int
    snapshot: int
    answers: int
    programs: int
    fetches: int


_MOST_FETCHES = 4
# Measured with git 2.39: a repository of 70,000 commits and 2,500 files is read with 16 MiB. A
# connection by https needs 11 MiB, most of it for the certificates of a system and the stack of a
# thread, and 16 MiB suffice for 20,000 refs.
_READ, _CONNECT = 24 * MIB, 16 * MIB
STACK: Final = MIB  # of a thread of a command that connects outside the turns
_SMALLEST_FETCH = 48 * MIB
UNLIMITED = Budget(
    worker=1024 * MIB,
    program=2048 * MIB,
    git=1024 * MIB,
    fetch=1024 * MIB,
    read=1024 * MIB,
    connect=1024 * MIB,
    snapshot=64 * MIB,
    answers=64 * MIB,
    programs=2,
    fetches=_MOST_FETCHES,
)


def budget(limit: int | None) -> Budget:
    """The shares of a limit in bytes; None: no limit."""
    if limit is None:
        return UNLIMITED
    whole = max(limit, _SMALLEST)
    worker = min(whole * 10 // 32, UNLIMITED.worker)
    program = min(whole * 9 // 32, UNLIMITED.program)
    git = min(whole * 6 // 32, UNLIMITED.git)
    programs = 1 if whole < 6144 * MIB else 2
    return Budget(
        worker=worker,
        program=program,
        git=git,
        fetch=max(git * 5 // 8, min(git, _SMALLEST_FETCH)),
        read=_READ,
        connect=_CONNECT,
        snapshot=min(whole // 16, UNLIMITED.snapshot),
        answers=min(whole // 16, UNLIMITED.answers),
        programs=programs,
        fetches=max(1, min((whole * 4 // 5 - worker - program * programs) // git, _MOST_FETCHES)),
    )


@lru_cache(maxsize=1)
def here() -> Budget:
    """The shares of this process: of the limit in the environment (the container's), else of the
    cgroup's limit.
    """
    text = os.environ.get(VARIABLE, "")
    return budget(int(text) if text.isdigit() and len(text) < 20 and int(text) else cgroup_limit())


def cgroup_limit(root: Path = _ROOT) -> int | None:
    """The lowest limit of our cgroup and its parents in bytes, for v2 and v1; None without a limit.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits(mounted: Path, path: str, name: str) -> list[int]:
    """The limits of the groups from the top down. In a container the path may be that of the host,
    of which only the top exists.
    """
    limits, at = [], mounted
    for part in ("", *Path(path.lstrip("/")).parts):
        at = at / part
        try:
            text = (at / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT:
            limits.append(int(text))
    return limits
