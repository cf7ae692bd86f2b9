"""What a process takes, by the operating system's count."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU and of wall, MiB at the peak."""

    cpu: float
    wall: float
    memory: float


def cost(
    command: Sequence[str | Path], cache: Path, variables: Mapping[str, str] | None = None
) -> Cost:
    """What it takes a process, with all that it starts, to come to an answer: 0 or 1."""
    environment = {
        **os.environ,
        "GITOPS_DS_CACHE": str(cache),
        "GITHUB_ACTIONS": "",
        **(variables or {}),
    }
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1024)


def show(what: str, ours: Sequence[Cost], theirs: Sequence[Cost] = ()) -> None:
    """The medians, and the ratio to a peer's."""
    cpu = [run.cpu for run in ours]
    beside = ""
    if theirs:
        peer = [run.cpu for run in theirs]
        beside = (
            f", {median(cpu) / median(peer):.2f} of the peer's {median(peer):.2f} s "
            f"({min(peer):.2f}-{max(peer):.2f})"
        )
    wall, memory = median(run.wall for run in ours), median(run.memory for run in ours)
    print(
        f"{what}: {median(cpu):.2f} s of CPU ({min(cpu):.2f}-{max(cpu):.2f}){beside}; wall "
        f"{wall:.2f} s, {memory:.0f} MiB",
        flush=True,
    )
