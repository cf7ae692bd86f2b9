"""The rollout of a template to all nodes: our staged rollout with the built-in controller, compared
with its own RollingUpdate with maxUnavailable 10 %, at the same concurrency (at most 10 % at risk),
without soak, alternating on one control plane without limits.

python -m benchmarks staged_rollouts; GITOPS_DS_BENCH_NODES (500), GITOPS_DS_BENCH_RUNS (5).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import rollouts
from gitops_ds.core.objects import annotations_of
from gitops_ds.rollouts.state import daemonset_statements
from tests.controlplane import ControlPlane, Wanted
from tests.gitservers import Upstream

NODES = rollouts.NODES[0]
DELETE, READY = 1000, 500  # milliseconds, as of a small container
POLICY = {
    "stages": [{"name": "rest", "soak": "0s", "pace": {"start": "100%", "max": "100%"}}],
    "limits": {"atRisk": {"cluster": "10%"}},
    "onFailure": {"revert": {"how": "none"}},
}


def main() -> None:
    options = Wanted(
        nodes=NODES,
        daemonset_controller=False,
        pod_ready_milliseconds=READY,
        pod_delete_milliseconds=DELETE,
    )
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Path(folder) / "plane", options)
        try:
            plane.start()
            plane.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=600s")
            builtin = rollouts.started(plane, rollouts.their_command(plane, rollouts.LIFTED))
            _compare(plane, Path(folder))
            builtin.terminate()
        finally:
            plane.stop()


def _compare(plane: ControlPlane, folder: Path) -> None:
    ours, theirs = [], []
    for number in range(rollouts.RUNS):
        theirs.append(_rolling_update(plane))
        ours.append(_staged(plane, folder / str(number)))
    rollouts.show(f"{NODES} nodes, staged rollout", "s", ours, theirs)


def _rolling_update(plane: ControlPlane) -> float:
    try:
        rollouts.timed(
            plane,
            NODES,
            lambda: plane.request("POST", rollouts.DAEMONSETS, rollouts.daemonset("1")),
        )
        return rollouts.timed(plane, NODES, lambda: rollouts.set_image(plane, "2"))
    finally:
        rollouts.clear(plane)


def _staged(plane: ControlPlane, folder: Path) -> float:
    """Seconds from the push to the status of the DaemonSet with the new template."""
    upstream = Upstream(folder)
    upstream.commit(_files("1"))
    process = _service(plane, upstream)
    try:
        _complete(plane, "1", lambda: None)
        return _complete(plane, "2", lambda: upstream.commit(_files("2")))
    finally:
        process.terminate()
        process.wait()
        rollouts.clear(plane)


def _service(plane: ControlPlane, upstream: Upstream) -> subprocess.Popen[bytes]:
    options = ("-C", upstream.path, "--interval", "1s", "--powers", "pace", "-q")
    command: list[str | Path] = [rollouts.PROGRAM, "run", "--kubeconfig", plane.kubeconfig]
    return rollouts.started(plane, [*command, *options])


def _files(image: str) -> dict[str, str]:
    return {
        "gitops-ds.yaml": "version: v1\n",
        "clusters/test.yaml": "{}\n",
        "agents/agent/daemonset.json": json.dumps(rollouts.daemonset(image)),
        "agents/agent/rollout.yaml": json.dumps(POLICY),
    }


def _complete(plane: ControlPlane, image: str, change: Callable[[], object]) -> float:
    began = time.perf_counter()
    change()
    while True:
        with rollouts.watched(plane) as events:
            for body in events:
                status = body.get("status") or {}
                counters = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
                container = body["spec"]["template"]["spec"]["containers"][0]
                if (
                    container["image"].endswith(f":{image}")
                    and not daemonset_statements.has_target(annotations_of(body))
                    and status.get("observedGeneration") == body["metadata"]["generation"]
                    and all(status.get(counter) == NODES for counter in counters)
                ):
                    return time.perf_counter() - began
