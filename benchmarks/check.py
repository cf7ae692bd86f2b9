"""`gitops-ds check` as a process, alternating with kubeconform on the same files: CPU, wall time
and memory.

python -m benchmarks check; GITOPS_DS_BENCH_FILES (10000), GITOPS_DS_BENCH_RUNS (5). kubeconform
runs `-strict` in one goroutine, with our definitions as its local schemas, one for each kind; it
has no rules.

The manifests are those of benchmarks/inputs.py (companions, comments, texts) with no finding, with
one of severity info, and with five each; and DaemonSets alone without findings (validate.TEMPLATE).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import inputs, processes, validate
from gitops_ds.checks.engine import rule_table
from gitops_ds.checks.schema import manifests
from gitops_ds.kube.apimachinery import kubernetes_versions

COUNT = int(os.environ.get("GITOPS_DS_BENCH_FILES", "10000"))
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
# the ratio of files a second of CPU to kubeconform's, by the number of findings of a file
GOALS = {0: 1.3, 1: 1.1, 5: 0.9}
ROOT = Path(__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("gitops-ds")


def kubeconform(folder: Path) -> list[str | Path]:
    """The command without the files."""
    build: list[str | Path] = [
        ROOT / "scripts/gobuild",
        "kubeconform",
        "benchmarks/kubeconform",
        "kubeconform",
    ]
    where = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    schemas = manifests.schemas_of(kubernetes_versions.NEWEST)
    for kind in ("apps/v1/DaemonSet", "v1/ConfigMap", "v1/Namespace", "v1/ServiceAccount"):
        schema = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": f"#/definitions/{schemas.kinds[kind]}",
            "definitions": dict(schemas.definitions),
        }
        name = kind.rpartition("/")[2].lower()
        (folder / f"{name}.json").write_text(json.dumps(schema))
    return [
        Path(where) / "kubeconform",
        "-strict",
        "-n",
        "1",
        "-schema-location",
        f"{folder}/{{{{ .ResourceKind }}}}.json",
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for count in sorted({1_000, COUNT}):
            compare(Path(name), count)
        findings(Path(name))


def findings(folder: Path) -> None:
    """Manifests as in real repositories, with findings."""
    peer = kubeconform(folder)
    for number, wanted in GOALS.items():
        files = folder / f"findings-{number}"
        files.mkdir()
        # plus a file of namespaces: a repository has at most 10,000 files
        inputs.write(files, COUNT - 1, findings=(number,))
        check: list[str | Path] = [
            PROGRAM,
            "check",
            "-q",
            "-o",
            f"json={os.devnull}",
            "--no-cache",
            files,
        ]
        theirs, ours = [], []
        for _ in range(RUNS):
            theirs.append(processes.cost([*peer, files], folder / "cache"))
            ours.append(processes.cost(check, folder / "cache"))
        processes.show(f"{COUNT:,} files, {number} findings each", ours, theirs)
        ratio = median(run.cpu for run in theirs) / median(run.cpu for run in ours)
        print(f"  files a second of CPU: {ratio:.2f} of kubeconform's (wanted: {wanted})")


def compare(folder: Path, count: int) -> None:
    plain, every = folder / f"{count}" / "manifests", folder / f"{count}-every" / "manifests"
    for files in (plain, every):
        files.mkdir(parents=True)
        # plus a file of settings: a repository has at most 10,000 files
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
