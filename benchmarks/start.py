"""The wall time of --help and of a render of examples-repo, each the minimum of five runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks import figures
from tests import controlplane

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(sys.executable).with_name("gitops-ds")


def main() -> None:
    python = _least([sys.executable, "-c", ""])
    figures.show("--help", _least([PROGRAM, "--help"]), python, "peer: python -c ''")
    kubectl = _least(
        [
            controlplane.programs() / "kubectl",
            "kustomize",
            str(ROOT / "deploy"),
        ]
    )
    ours = _least([PROGRAM, "render", ROOT / "examples-repo", "--cluster", "eu-1"])
    figures.show(
        "render of examples-repo (eu-1)", ours, kubectl, "peer: kubectl kustomize of one directory"
    )


def _least(command: list[str | Path]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return min(times)
