"""`gitops-ds check` as a process, in turns with kubeconform on the same files: CPU, wall and
memory.

python -m benchmarks check; GITOPS_DS_BENCH_FILES (10000), GITOPS_DS_BENCH_RUNS (5). kubeconform is
`-strict` in one goroutine, with our own definitions of a DaemonSet as its one local schema; it has
no rules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import processes, validate
from gitops_ds.apimachinery import kubernetes_versions
from gitops_ds.checks.engine import rule_table
from gitops_ds.checks.schema import kubernetes

COUNT = int(os.environ.get("GITOPS_DS_BENCH_FILES", "10000"))
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
ROOT = Path(__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("gitops-ds")


def kubeconform(folder: Path) -> list[str | Path]:
    """The command but for the files."""
    build: list[str | Path] = [
        ROOT / "scripts/gobuild",
        "kubeconform",
        "benchmarks/kubeconform",
        "kubeconform",
    ]
    where = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    schemas = kubernetes.schemas(kubernetes_versions.NEWEST)
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": f"#/definitions/{schemas.kinds['apps/v1/DaemonSet']}",
        "definitions": dict(schemas.definitions),
    }
    (folder / "daemonset.json").write_text(json.dumps(schema))
    return [
        Path(where) / "kubeconform",
        "-strict",
        "-n",
        "1",
        "-schema-location",
        folder / "daemonset.json",
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for count in sorted({1_000, COUNT}):
            compare(Path(name), count)


def compare(folder: Path, count: int) -> None:
    plain, every = folder / f"{count}" / "manifests", folder / f"{count}-every" / "manifests"
    for files in (plain, every):
        files.mkdir(parents=True)
        # beside them a file of settings: a repository has at most 10,000 files
        validate.write(files, count - 1, 0)
    switches = ", ".join(sorted({f"{rule.id}: true" for rule in rule_table.RULES if not rule.on}))
    (every.parent / "gitops-ds.yaml").write_text(
        f"version: v1\nmanifests: [manifests/*.yaml]\nrules: {{{switches}}}\n"
    )
    check: list[str | Path] = [PROGRAM, "check", "-q", "-o", f"json={os.devnull}"]
    ways: dict[str, list[str | Path]] = {
        "the rules that are on": [*check, "--no-cache", plain],
        "every rule switched on": [*check, "--no-cache", every.parent],
        "unchanged files": [*check, plain],
        "the schema alone": [sys.executable, "-m", "benchmarks.schema_alone", plain],
    }
    peer = [*kubeconform(folder), plain]
    ours: dict[str, list[processes.Cost]] = {what: [] for what in ways}
    theirs = []
    processes.cost(ways["unchanged files"], folder / "cache")
    for _ in range(RUNS):
        theirs.append(processes.cost(peer, folder / "cache"))
        for what, command in ways.items():
            ours[what].append(processes.cost(command, folder / "cache"))
    print(f"{count:,} manifests; kubeconform: wall {min(run.wall for run in theirs):.2f} s")
    for what, runs in ours.items():
        processes.show(f"{count:,} manifests, {what}", runs, theirs)
    first, repeated = (
        median(run.cpu for run in ours[what])
        for what in ("the rules that are on", "unchanged files")
    )
    print(
        f"{count:,} manifests, unchanged: {first / repeated:.1f} times as fast as the first check, "
        "start included"
    )
