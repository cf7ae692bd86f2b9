"""A DaemonSet is created, updated at 10 % and undone on KWOK nodes: our controller core compared
with upstream's, alternating on one control plane: wall time, CPU and memory of the controller's
process.

python -m benchmarks rollouts; GITOPS_DS_BENCH_NODES (500,1000), GITOPS_DS_BENCH_RUNS (5);
GITOPS_DS_BENCH_SHIPPED=1 also runs upstream's with its default limits (minutes).
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import processes
from gitops_ds.kube.apimachinery import timestamps
from tests import controlplane
from tests.controlplane import ControlPlane, Wanted

NODES = [int(number) for number in os.environ.get("GITOPS_DS_BENCH_NODES", "500,1000").split(",")]
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
PROGRAM = Path(sys.executable).with_name("gitops-ds")
STEPS = ("create", "update", "undo")
DAEMONSETS = "/apis/apps/v1/namespaces/default/daemonsets"
QUIET = 60.0  # seconds
STARTED = 5.0  # seconds; ours first checks for another controller for three, nearly idle
LIFTED = ("--kube-api-qps", "5000", "--kube-api-burst", "5000")


# The goals are shares of the peer's figure.
WALL_GOAL = 1.0
FIGURES = (
    ("CPU of the three", "s", "cpu", None),
    ("CPU of the whole process", "s", "whole_cpu", 0.7),
    ("memory at its peak", "MiB", "memory", 0.5),
)


@dataclass(frozen=True)
class Run:
    """Seconds of each step; seconds of CPU for all of them together, and with the start; MiB at the
    peak.
    """

    wall: tuple[float, ...]
    cpu: float
    whole_cpu: float
    memory: float


def daemonset(image: str) -> dict[str, Any]:
    container = {
        "name": "agent",
        "image": f"registry.example.com/agent:{image}",
        "args": ["--config=/etc/agent/agent.yaml", "--node=$(NODE_NAME)"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "metrics", "containerPort": 9100}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "varlog", "mountPath": "/var/log", "readOnly": True}],
    }
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "varlog", "hostPath": {"path": "/var/log"}}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": template,
        },
    }


def main() -> None:
    for nodes in NODES:
        with tempfile.TemporaryDirectory() as folder:
            plane = ControlPlane(
                Path(folder) / "plane", Wanted(nodes=nodes, daemonset_controller=False)
            )
            try:
                compare(plane.start(), nodes)
            finally:
                plane.stop()


def compare(plane: ControlPlane, nodes: int) -> None:
    plane.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=600s")
    # YAML with the certificate in it, as kubeconfigs are
    plane.kubeconfig.write_text(plane.kubectl("config", "view", "--raw", "--flatten"))
    # the first of all runs on a new control plane is slow
    measured(plane, nodes, their_command(plane, LIFTED))
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(measured(plane, nodes, our_command(plane)))
        theirs.append(measured(plane, nodes, their_command(plane, LIFTED)))
    for index, step in enumerate(STEPS):
        mine, peers = ([run.wall[index] for run in runs] for runs in (ours, theirs))
        show(f"{nodes} nodes, {step}", "s", mine, peers, goal=WALL_GOAL)
    for what, unit, field, goal in FIGURES:
        mine, peers = ([getattr(run, field) for run in runs] for runs in (ours, theirs))
        show(f"{nodes} nodes, {what}", unit, mine, peers, goal=goal)
    print(f"{nodes} nodes, quiet: {100 * quiet(plane, nodes):.2f} % of a core", flush=True)
    if os.environ.get("GITOPS_DS_BENCH_SHIPPED"):
        shipped = measured(plane, nodes, their_command(plane, ()))
        for index, step in enumerate(STEPS):
            show(
                f"{nodes} nodes, {step}, peer as shipped",
                "s",
                [run.wall[index] for run in ours],
                [shipped.wall[index]],
            )


def quiet(plane: ControlPlane, nodes: int) -> float:
    """The share of a core of our controller while only the five-minute status writes and the leases
    of kubelets arrive.
    """
    process = started(plane, our_command(plane))
    try:
        processes.idle(process.pid)
        before, began, sent = _cpu(process), time.perf_counter(), 0
        while (now := time.perf_counter() - began) < QUIET:
            if sent < now * nodes / 300:
                heartbeat = {
                    "status": {
                        "conditions": [
                            {"type": "Ready", "lastHeartbeatTime": timestamps.text(time.time())}
                        ]
                    }
                }
                path = f"/api/v1/nodes/node-{sent % nodes:03d}/status"
                plane.request("PATCH", path, heartbeat, "application/strategic-merge-patch+json")
                sent += 1
            time.sleep(0.05)
        return (_cpu(process) - before) / now
    finally:
        process.terminate()
        process.wait()


def show(
    what: str, unit: str, ours: list[float], theirs: list[float], goal: float | None = None
) -> None:
    mine, peer = median(ours), median(theirs)
    beside = "" if goal is None else f" (goal: {goal:g})"
    spread = (
        f"; {min(ours):.2f}-{max(ours):.2f} against {min(theirs):.2f}-{max(theirs):.2f}"
        if len(ours) > 1
        else ""
    )
    print(
        f"{what}: {mine:.2f} {unit}, {mine / peer:.2f}{beside} of upstream's {peer:.2f} {unit}"
        f"{spread}",
        flush=True,
    )


def our_command(plane: ControlPlane) -> list[str | Path]:
    return [PROGRAM, "run", "--powers", "full", "--kubeconfig", plane.kubeconfig, "-q"]


def their_command(plane: ControlPlane, limits: tuple[str, ...]) -> list[str | Path]:
    program = controlplane.programs() / "kube-controller-manager"
    options = (
        "--controllers",
        "daemonset-controller",
        "--leader-elect=false",
        "--secure-port",
        "0",
    )
    return [program, "--kubeconfig", plane.kubeconfig, *options, *limits]


def started(plane: ControlPlane, command: list[str | Path]) -> subprocess.Popen[bytes]:
    with (plane.directory / "controller.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=plane.directory
        )


def measured(plane: ControlPlane, nodes: int, command: list[str | Path]) -> Run:
    process = started(plane, command)
    try:
        time.sleep(STARTED)
        processes.idle(process.pid)
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended; its log is {plane.directory}/controller.log")
        before = _cpu(process)
        walls = [
            timed(plane, nodes, lambda: plane.request("POST", DAEMONSETS, daemonset("1"))),
            timed(plane, nodes, lambda: set_image(plane, "2")),
            timed(plane, nodes, lambda: set_image(plane, "1")),
        ]
        processes.idle(process.pid)
        whole = _cpu(process)
        return Run(tuple(walls), whole - before, whole, processes.memory(process.pid, "VmHWM"))
    finally:
        clear(plane)
        process.terminate()
        process.wait()


def set_image(plane: ControlPlane, image: str) -> None:
    patch = {"spec": {"template": daemonset(image)["spec"]["template"]}}
    plane.request("PATCH", f"{DAEMONSETS}/agent", patch, "application/strategic-merge-patch+json")


def timed(plane: ControlPlane, nodes: int, change: Callable[[], None]) -> float:
    """Seconds from the change to the status that counts every node as updated."""
    began = time.perf_counter()
    change()
    with watched(plane) as events:
        for event in events:
            status = event.get("status") or {}
            seen = status.get("observedGeneration") == event["metadata"]["generation"]
            counters = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
            if seen and all(status.get(counter) == nodes for counter in counters):
                return time.perf_counter() - began
    raise RuntimeError("the watch ended")


@contextlib.contextmanager
def watched(plane: ControlPlane) -> Iterator[Iterator[dict[str, Any]]]:
    """The DaemonSet, and again after each change."""
    context = ssl.create_default_context(cafile=str(plane.ca))
    request = urllib.request.Request(
        f"{plane.url}{DAEMONSETS}?watch=1", headers={"Authorization": f"Bearer {plane.token}"}
    )
    with urllib.request.urlopen(request, context=context, timeout=200) as reply:
        yield (json.loads(line)["object"] for line in reply)


def clear(plane: ControlPlane) -> None:
    """Deletes all objects, with the garbage collector."""
    with contextlib.suppress(urllib.error.HTTPError):
        plane.request("DELETE", f"{DAEMONSETS}/agent")
    for kind in (
        "api/v1/namespaces/default/pods",
        "apis/apps/v1/namespaces/default/controllerrevisions",
    ):
        while plane.request("GET", f"/{kind}?limit=1")["items"]:
            time.sleep(0.2)


def _cpu(process: subprocess.Popen[bytes]) -> float:
    own, _ = processes.cpu(process.pid)
    return own
