"""The output of figures: seconds, and the ratio to a peer in the same run."""

from __future__ import annotations

import os
import resource

from benchmarks import processes


def show(what: str, seconds: float, peer: float | None, note: str = "") -> None:
    ratio = f", {seconds / peer:.2f} of the peer's {peer:.2f} s" if peer else ""
    print(f"{what}: {seconds:.2f} s{ratio}" + (f"; {note}" if note else ""), flush=True)


def memory(what: str) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    now = processes.memory(os.getpid())
    print(f"memory of {what}: {now:.0f} MiB, at its peak {peak:.0f} MiB", flush=True)


def bounded(what: str, value: float, unit: str, bound: float) -> bool:
    """Prints a figure with its bound, and returns whether it is within the bound."""
    verdict = "within" if value <= bound else "ABOVE"
    print(f"{what}: {value:.2f} {unit}, {verdict} its bound of {bound:g} {unit}", flush=True)
    return value <= bound
