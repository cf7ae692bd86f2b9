"""1,000 DaemonSets from a directory against a real API server, beside `kubectl apply --server-side`
in the same run.

Seconds depend on the machine; the ratios travel. Requests are those that the API server counted.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from benchmarks import figures
from gitops_ds.client import config, rest
from gitops_ds.deployer import loop as deployer_loop
from gitops_ds.deployer import revision_selector
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.git import address, local_worktree, revision
from gitops_ds.git.repository import Repository
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.deployer import Reconciled
from gitops_ds.pipeline import open_repository, prepare
from gitops_ds.plan.options import ApplyOptions
from tests import controlplane
from tests.controlplane import ControlPlane, Wanted

COUNT = int(os.environ.get("GITOPS_DS_BENCH_COUNT", "1000"))
AUTHOR = "Bench <bench@example.com>"
PROGRAM = Path(sys.executable).with_name("gitops-ds")

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


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        work = folder / "repository"
        work.mkdir()
        for n in range(COUNT):
            (work / f"agent-{n:04d}.yaml").write_text(TEMPLATE.format(n=n))
        local_worktree.begin(work, "a thousand agents", AUTHOR)
        kubectl, ours = (
            ControlPlane(folder / name, Wanted(controllers=False)) for name in ("kubectl", "ours")
        )
        try:
            compare(work, kubectl.start(), ours.start())
        finally:
            kubectl.stop()
            ours.stop()


def compare(work: Path, kubectl: ControlPlane, ours: ControlPlane) -> None:
    environment = {
        **os.environ,
        "KUBECONFIG": str(ours.kubeconfig),
        "XDG_CACHE_HOME": str(work.parent / "cache"),
    }

    def by_kubectl() -> None:
        command: list[str | Path] = [
            controlplane.programs() / "kubectl",
            "--kubeconfig",
            kubectl.kubeconfig,
            "apply",
            "--server-side",
            "-f",
            work,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def by_us() -> None:
        subprocess.run(
            [PROGRAM, "apply", work, "-q"], check=True, stdout=subprocess.DEVNULL, env=environment
        )

    def change() -> None:
        file = work / "agent-0007.yaml"
        file.write_text(
            re.sub(
                r"image: .*",
                f"image: registry.example.com/agent:{random.randint(2, 10**6)}",
                file.read_text(),
            )
        )
        local_worktree.commit(work, "one image", AUTHOR)

    rows = {}
    for name in ("first apply", "nothing changed", "one image changed"):
        if name == "one image changed":
            change()
        rows[name] = (_measured(kubectl, by_kubectl), _measured(ours, by_us))
        figures.show(
            f"{COUNT} DaemonSets, {name}, as a command",
            rows[name][1][0],
            rows[name][0][0],
            _summary(rows[name][1][1]),
        )
    asyncio.run(_service(work, ours, change, rows["one image changed"][0][0]))


def _measured(plane: ControlPlane, work: Callable[[], None]) -> tuple[float, dict[str, int]]:
    before, began = _requests(plane), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return seconds, {
        verb: count - before.get(verb, 0)
        for verb, count in _requests(plane).items()
        if count > before.get(verb, 0)
    }


def _requests(plane: ControlPlane) -> dict[str, int]:
    """DaemonSet requests by verb, as the API server counted them."""
    text = _metrics(plane)
    result: dict[str, int] = {}
    for labels, count in re.findall(r"^apiserver_request_total\{([^}]*)\} (\S+)", text, re.M):
        sample = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if sample.get("resource") == "daemonsets":
            verb = sample["verb"] + (" (dry run)" if sample.get("dry_run") else "")
            result[verb] = result.get(verb, 0) + int(float(count))
    return result


def _metrics(plane: ControlPlane) -> str:
    import ssl

    context = ssl.create_default_context(cafile=str(plane.ca))
    request = urllib.request.Request(
        plane.url + "/metrics", headers={"Authorization": f"Bearer {plane.token}"}
    )
    with urllib.request.urlopen(request, context=context) as reply:
        return str(reply.read().decode())


def _summary(requests: dict[str, int]) -> str:
    return "DaemonSet requests: " + (
        ", ".join(f"{count} {verb}" for verb, count in sorted(requests.items())) or "none"
    )


async def _service(
    work: Path, plane: ControlPlane, change: Callable[[], None], kubectl_seconds: float
) -> None:
    """The loop with warm caches: one image, then nothing."""
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
        while (await ended.get()).writes:  # until a pass finds everything done
            pass
        before = _requests(plane)
        change()
        began = time.perf_counter()
        loop.request()
        await ended.get()
        seconds = time.perf_counter() - began
        await ended.get()  # the look at what was written
        after = {
            verb: count - before.get(verb, 0)
            for verb, count in _requests(plane).items()
            if count > before.get(verb, 0)
        }
        figures.show(
            f"{COUNT} DaemonSets, one image changed, caches warm",
            seconds,
            kubectl_seconds,
            _summary(after),
        )
        sent = cluster.requests
        began = time.perf_counter()
        loop.request()
        while not loop.idle:
            await asyncio.sleep(0.001)
        figures.show(
            f"{COUNT} DaemonSets, nothing changed, caches warm",
            time.perf_counter() - began,
            None,
            f"{cluster.requests - sent} requests",
        )
        figures.memory("the service")
        loop.stop()
        await running
