"""`gitops-ds apply` of 300 and of 1,000 DaemonSets on a real API server, alternating with `kubectl
apply --server-side` of the same files: first, unchanged, and with one changed image.

python -m benchmarks apply; GITOPS_DS_BENCH_COUNT (300,1000), GITOPS_DS_BENCH_RUNS (5). Each run has
two new control planes; a figure is the median of the runs. Seconds depend on the machine, ratios do
not. Requests are counted by the API server.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import clusters, figures, inputs
from benchmarks.clusters import Run
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import revision_selector
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.client import config, rest
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.source.git import address, local_worktree, revision
from gitops_ds.source.git.repository import Repository
from tests.controlplane import ControlPlane, Wanted

COUNTS = [int(n) for n in os.environ.get("GITOPS_DS_BENCH_COUNT", "300,1000").split(",")]
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
AUTHOR = "Bench <bench@example.com>"
PROGRAM = Path(sys.executable).with_name("gitops-ds")
# the goal as a share of kubectl's wall time, by the number of DaemonSets
GOALS: Mapping[int, Mapping[str, float]] = {
    300: {"first": 0.9, "unchanged": 0.4, "one image changed": 0.4},
    1000: {"first": 0.7, "unchanged": 0.25, "one image changed": 0.25},
}

TEMPLATE = """\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent-{n:04d}
  namespace: default
  labels: {{app.kubernetes.io/name: agent-{n:04d}, team: platform}}
spec:
  selector:
    matchLabels: {{app: agent-{n:04d}}}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {{maxUnavailable: 10%}}
  template:
    metadata:
      labels: {{app: agent-{n:04d}}}
    spec:
      serviceAccountName: default
      tolerations:
        - operator: Exists
      containers:
        - name: agent
          image: registry.example.com/agent:1.0.{n}
          args: [--config=/etc/agent/agent.yaml, --node=$(NODE_NAME)]
          env:
            - name: NODE_NAME
              valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}
            - name: LEVEL
              value: info
          ports:
            - {{name: metrics, containerPort: 9100}}
          resources:
            requests: {{cpu: 50m, memory: 64Mi}}
            limits: {{memory: 256Mi}}
          readinessProbe:
            httpGet: {{path: /ready, port: metrics}}
          volumeMounts:
            - {{name: varlog, mountPath: /var/log, readOnly: true}}
            - {{name: run, mountPath: /run/agent}}
      volumes:
        - name: varlog
          hostPath: {{path: /var/log}}
        - name: run
          emptyDir: {{}}
"""

Runs = dict[str, list[Run]]


def clean(folder: Path, count: int) -> None:
    """One DaemonSet in each file, all from one template."""
    for n in range(count):
        (folder / f"agent-{n:05d}.yaml").write_text(TEMPLATE.format(n=n))


def real(folder: Path, count: int) -> None:
    """Files with comments, companions and findings."""
    inputs.write(folder, count)


INPUTS: Mapping[str, Callable[[Path, int], None]] = {
    "DaemonSets as in repositories": real,
    "DaemonSets of one template (clean input)": clean,
}


def main() -> None:
    clusters.compile_program()
    for count in COUNTS:
        for name, write in INPUTS.items():
            ours: Runs = defaultdict(list)
            theirs: Runs = defaultdict(list)
            for _ in range(RUNS):
                with tempfile.TemporaryDirectory() as folder:
                    repository = _repository(Path(folder), write, count)
                    measure(repository, ours, theirs)
            for phase, runs in ours.items():
                goal = GOALS.get(count, {}).get(phase)
                clusters.show(f"{count} {name}, {phase}", runs, theirs[phase], goal)
    with tempfile.TemporaryDirectory() as folder:
        repository = _repository(Path(folder), clean, max(COUNTS))
        plane = ControlPlane(Path(folder) / "own", Wanted(controllers=False))
        try:
            asyncio.run(warm(repository, plane.start()))
        finally:
            plane.stop()


def _repository(folder: Path, write: Callable[[Path, int], None], count: int) -> Path:
    work = folder / "repository"
    work.mkdir()
    write(work, count)
    local_worktree.begin(work, "many agents", AUTHOR)
    return work


def measure(work: Path, ours: Runs, theirs: Runs) -> None:
    """One run: two control planes, and each phase for both programs."""
    with clusters.pair(work.parent, Wanted(controllers=False)) as (peer, own):
        for phase in ("first", "unchanged", "one image changed"):
            if phase == "one image changed":
                change(work)
            theirs[phase].append(
                clusters.run(peer, clusters.kubectl(peer, "apply", "--server-side", "-f", work))
            )
            ours[phase].append(clusters.run(own, [PROGRAM, "apply", work, "-q"]))


def change(work: Path) -> None:
    """Commits another image of one agent."""
    file = work / "agent-00007.yaml"
    image = f"image: registry.example.com/agent:{random.randint(2, 10**6)}"
    file.write_text(re.sub(r"image: .*", image, file.read_text(), count=1))
    local_worktree.commit(work, "one image", AUTHOR)


async def warm(work: Path, plane: ControlPlane) -> None:
    """The service's loop with warm caches: one image, then nothing."""
    ended: asyncio.Queue[Reconciled] = asyncio.Queue()

    def emit(event: Event) -> None:
        if isinstance(event, Reconciled):
            ended.put_nowait(event)

    where = address.parse(str(work), allow_local=True)
    async with (
        Repository(where, work.parent / "bare") as repository,
        rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster,
    ):
        place = DeployTarget(cluster, "gitops-ds", "bench", where.display)
        source = revision_selector.RevisionSource(
            lambda: repository.tip(revision.Head()),
            lambda c: open_repository.snapshot_of(repository, c, ""),
            repository.movement,
            revision_selector.prepare_directly(prepare.prepare),
        )
        loop = deployer_loop.Loop(
            source,
            place,
            ApplyOptions(adopt=True, patience=0.0),
            emit,
            deployer_loop.LoopTiming(5.0, time.time, random.random),
        )
        running = asyncio.create_task(loop.run())
        while (await ended.get()).writes:  # until a reconciliation finds nothing to do
            pass
        before = clusters.requests(plane)
        change(work)
        began = time.perf_counter()
        loop.request()
        await ended.get()
        seconds = time.perf_counter() - began
        await ended.get()  # the reconciliation after the writes
        figures.show(
            f"{max(COUNTS)} DaemonSets, one image changed, caches warm",
            seconds,
            None,
            clusters.summary(clusters.since(before, plane)),
        )
        sent = cluster.requests
        began = time.perf_counter()
        loop.request()
        while not loop.idle:
            await asyncio.sleep(0.001)
        figures.show(
            f"{max(COUNTS)} DaemonSets, nothing changed, caches warm",
            time.perf_counter() - began,
            None,
            f"{cluster.requests - sent} requests",
        )
        figures.memory("the service")
        loop.stop()
        await running
