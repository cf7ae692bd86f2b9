"""`gitops-ds plan` of one file on a small cluster, as a whole process: a new file, the same file in
the cluster, and a changed one, also in a work tree of Git; alternating with `kubectl diff
--server-side`. The requests include those of the control plane's own controllers.

python -m benchmarks plan; GITOPS_DS_BENCH_RUNS (5).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks import clusters, inputs
from benchmarks.clusters import Run
from gitops_ds.source.git import local_worktree
from tests.controlplane import ControlPlane, Wanted

RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
PROGRAM = Path(sys.executable).with_name("gitops-ds")
GOAL_SECONDS = 0.25
DIFF = ("diff", "--server-side", "--field-manager", "gitops-ds", "-f")


def main() -> None:
    clusters.compile_program()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plane = ControlPlane(folder / "plane", Wanted(nodes=5))
        try:
            compare(folder, plane.start())
        finally:
            plane.stop()


def compare(folder: Path, plane: ControlPlane) -> None:
    work = folder / "files"
    work.mkdir()
    namespaces, file = inputs.write(work, 1, findings=(2,))
    plane.kubectl("apply", "--server-side", "-f", str(namespaces))
    clusters.rest(plane)
    show("a new file", plane, work)
    plane.kubectl("apply", "--server-side", "--field-manager", "gitops-ds", "-f", str(file))
    clusters.rest(plane)
    show("a file of the cluster", plane, work)
    file.write_text(file.read_text().replace("cpu: ", "cpu: 1"))
    show("a changed file", plane, work)
    local_worktree.begin(work, "one agent", "Bench <bench@example.com>")
    show("a changed file in a work tree of Git", plane, work)


def show(what: str, plane: ControlPlane, work: Path) -> None:
    ours: list[Run] = []
    theirs: list[Run] = []
    for _ in range(RUNS):
        theirs.append(clusters.run(plane, clusters.kubectl(plane, *DIFF, work)))
        ours.append(clusters.run(plane, [PROGRAM, "plan", work, "-q"]))
    clusters.show(f"plan of {what} (wanted: {GOAL_SECONDS} s)", ours, theirs, None)
