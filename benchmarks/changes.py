"""`check --base` over 50 agents and 20 clusters of 250 nodes each, as a command in a Git
repository: wall and CPU.

python -m benchmarks changes
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import processes

AGENTS, CLUSTERS = 50, 20
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
PROGRAM = Path(sys.executable).with_name("gitops-ds")
POOLS = """\
environment: production
pools:
  general: {match: [{key: pool, in: [general]}], nodes: 200, allocatable: {cpu: 4, memory: 16Gi, pods: 110}}
  gpu: {match: [{key: pool, in: [gpu]}], nodes: 50, allocatable: {cpu: 8, memory: 32Gi, pods: 110}}
"""  # noqa: E501


def agent(number: int, version: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": f"agent-{number}"}
    container = {
        "name": "agent",
        "image": f"registry.example.com/agent:{version}",
        "ports": [{"name": "metrics", "containerPort": 9000}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "metrics"}},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    }
    pod = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"agent-{number}", "namespace": "node-agents", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "minReadySeconds": 10,
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def write(folder: Path, changed: int, version: str) -> None:
    """Writes the repository, with another version of the first agents."""
    files = {"gitops-ds.yaml": "version: v1\nname: fleet\n", "environments/production.yaml": "{}\n"}
    files |= {f"clusters/eu-{number}.yaml": POOLS for number in range(CLUSTERS)}
    for number in range(AGENTS):
        body = agent(number, version if number < changed else "1.0.0")
        files[f"agents/agent-{number}/daemonset.yaml"] = json.dumps(body, indent=2)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fleet"
        git = [
            "git",
            "-C",
            str(folder),
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@example.com",
        ]
        write(folder, 0, "1.0.0")
        for words in (
            ["init", "-q", "-b", "main"],
            ["add", "."],
            ["commit", "-q", "-m", "base"],
            ["checkout", "-q", "-b", "change"],
        ):
            subprocess.run([*git, *words], check=True)
        for changed in (1, 3, AGENTS):
            write(folder, changed, f"1.{changed}.0")
            command: list[str | Path] = [PROGRAM, "check", folder, "--base", "main", "-q"]
            command += ["-o", f"json={os.devnull}"]
            runs = [processes.cost(command, Path(name) / "cache") for _ in range(RUNS)]
            processes.show(
                f"{changed} of {AGENTS} agents changed on {CLUSTERS} clusters of 250 nodes", runs
            )
