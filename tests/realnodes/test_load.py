"""A rollout on full nodes while their kubelets restart: no node is without its agent for longer
than one replacement of a pod takes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.realnodes import faults
from tests.realnodes.lab import MARKS, NODES, Lab, condition, laboratory

pytestmark = MARKS
EACH = 30  # other pods of a node
PAUSE = 10  # seconds between two restarts of a kubelet
LONGEST = 60.0  # seconds without an agent, on a busy machine; 2 to 10 on a quiet one
FILLER: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "filler"},
    "spec": {
        "replicas": EACH * len(NODES),
        "selector": {"matchLabels": {"app": "filler"}},
        "template": {
            "metadata": {"labels": {"app": "filler"}},
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "filler", "image": "localhost/pause:1"}],
            },
        },
    },
}


def test_no_node_is_long_without_its_agent(tmp_path: Path) -> None:
    with laboratory(tmp_path, "pace") as lab:
        lab.plane.kubectl("create", "-f", "-", stdin=json.dumps(FILLER))
        lab.upstream.commit(_files(1))
        lab.until(lambda: _ready(lab, "filler", EACH) == set(NODES), 600)
        lab.until(lambda: _ready(lab, "agent") == set(NODES) and lab.are_healthy())
        with _kubelets_restart(lab) as restarts:
            lab.upstream.commit(_files(2))
            gaps = _gaps(lab, lambda: _has_version(lab, 2) and len(restarts) >= len(NODES))
        print(f"{len(restarts)} restarts of kubelets, the longest time without: {gaps}")
        assert max(gaps.values()) < LONGEST
        lab.until(lab.are_healthy)


def _files(version: int) -> dict[str, str | bytes | None]:
    body = faults.manifest(faults.Fault("agent", lambda pod: None), changed=False)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "VERSION", "value": str(version)}]
    stages = [{"name": "canary", "nodes": {"count": 1}, "soak": "10s"}, {"name": "rest"}]
    limits = {"limits": {"atRisk": {"cluster": "40%"}}, "onFailure": {"revert": {"how": "none"}}}
    return {
        "agents/agent/daemonset.json": json.dumps(body),
        "agents/agent/rollout.yaml": json.dumps({"stages": stages, **limits}),
    }


def _ready(lab: Lab, app: str, number: int = 1) -> set[str]:
    """The nodes with at least a number of ready pods."""
    nodes = [
        str(pod["spec"].get("nodeName"))
        for pod in lab.pods(app)
        if condition(pod, "Ready") == "True"
    ]
    return {node for node in nodes if nodes.count(node) >= number}


def _has_version(lab: Lab, version: int) -> bool:
    """Whether every pod of the agent has a version."""
    pods = lab.pods("agent")
    values = {pod["spec"]["containers"][0]["env"][0]["value"] for pod in pods}
    return values == {str(version)} and _ready(lab, "agent") == set(NODES)


def _gaps(lab: Lab, ends: Callable[[], bool]) -> dict[str, float]:
    """The longest time without a ready agent of each node in seconds, until the rollout ends."""
    seen, longest = dict.fromkeys(NODES, time.monotonic()), dict.fromkeys(NODES, 0.0)
    deadline = time.monotonic() + 600
    while not ends():
        assert time.monotonic() < deadline, lab.command("status", "ds/agent", "-n", "default").out
        ready, now = _ready(lab, "agent"), time.monotonic()
        for node in NODES:
            longest[node] = max(longest[node], round(now - seen[node], 1))
            seen[node] = now if node in ready else seen[node]
        time.sleep(0.2)
    return longest


def _heartbeat(lab: Lab, node: str) -> str:
    """The last renewal of the lease of a node, which a kubelet renews at its start."""
    path = "jsonpath={.spec.renewTime}"
    return lab.plane.kubectl("get", "lease", node, "-n", "kube-node-lease", "-o", path)


@contextmanager
def _kubelets_restart(lab: Lab) -> Iterator[list[str]]:
    """Restarts the kubelets, one after the other, with a pause of seconds for each node. On a busy
    machine the next restart waits for the kubelet: one that never comes up replaces no pod.
    """
    restarts, ended = list[str](), threading.Event()

    def run() -> None:
        began = time.monotonic()
        while not ended.wait(max(0.0, began + PAUSE / len(NODES) - time.monotonic())):
            began, node = time.monotonic(), NODES[len(restarts) % len(NODES)]
            lab.nodes.nodes[node].do("stop_kubelet")
            before = _heartbeat(lab, node)
            lab.nodes.nodes[node].do("start_kubelet")
            restarts.append(node)
            while not ended.wait(0.5) and _heartbeat(lab, node) == before:
                pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield restarts
    finally:
        ended.set()
        thread.join()
