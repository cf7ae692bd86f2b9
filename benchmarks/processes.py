"""The cost of a process, measured by the operating system."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

TICKS = os.sysconf("SC_CLK_TCK")  # in a second
IDLE = 0.04  # seconds of CPU in a second


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU and of wall, MiB at the peak."""

    cpu: float
    wall: float
    memory: float


def cpu(process: int) -> tuple[float, float]:
    """Seconds of CPU of a running process so far: its own, and those of the programs that it ran.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, kernel, children, children_kernel = (int(field) / TICKS for field in fields[11:15])
    return user + kernel, children + children_kernel


def memory(process: int, which: str = "VmRSS") -> float:
    """MiB of a running process: now, or at its peak (VmHWM)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024


def reset_peak(process: int) -> None:
    """VmHWM counts from now: https://man7.org/linux/man-pages/man5/proc_pid_clear_refs.5.html"""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def idle(process: int) -> None:
    """Waits until a process, with the programs that it ran, uses at most 4 % of a core for a
    second.
    """
    before = -1.0
    while (now := sum(cpu(process))) - before > IDLE:
        before = now
        time.sleep(1)


def cost(
    command: Sequence[str | Path], cache: Path, variables: Mapping[str, str] | None = None
) -> Cost:
    """The cost of a process with its children, until it exits with 0 or 1."""
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
