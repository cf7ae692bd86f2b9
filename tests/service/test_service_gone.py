"""A service that ends while nodes are updated leaves no node without an agent: the scheduler binds
the pods of the target at the end of the earlier ones, and evicts no pod of a tenant for them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane
from tests.gitservers import Upstream
from tests.service import staged
from tests.service.staged import PodWatch, Soaks
from tests.service.test_service import running

pytestmark = staged.MARKS
NODES = 2
ENDS = 3000  # milliseconds of a pod
SLACK = 5.0  # seconds in which a pod is bound and becomes ready
ONCE = """\
stages: [{name: rest, soak: 1s, pace: {start: 100%, max: 100%}}]
limits: {atRisk: {cluster: 100%}}
"""
ROOM = {"cpu": "1", "memory": "4Gi", "pods": "20"}
URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


def files(tag: str) -> dict[str, str]:
    """An agent of a high priority with more than half of a node's CPU."""
    body = staged.manifest(tag)
    spec = body["spec"]["template"]["spec"]
    spec["priorityClassName"] = "urgent"
    spec["containers"][0]["resources"] = {"requests": {"cpu": "600m"}}
    return {
        "gitops-ds.yaml": "version: v1\n",
        "agents/agent/daemonset.json": json.dumps(body),
        "agents/agent/rollout.yaml": ONCE,
    }


def tenant(node: str) -> dict[str, Any]:
    """A pod without priority that fits beside one agent, not beside two."""
    resources = {"requests": {"cpu": "300m"}}
    container = {"name": "web", "image": "registry.example.com/web:tenant", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"tenant-{node}"},
        "spec": {"nodeName": node, "containers": [container]},
    }


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM], ids=lambda one: one.name)
def test_no_node_waits_for_a_service_that_is_gone(tmp_path: Path, sent: signal.Signals) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit(files("1"))
    with staged.plane_with(tmp_path, 0, ENDS) as plane:
        plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", URGENT)
        for number in range(NODES):
            body = controlplane.node(staged.name_of(number))
            plane.add_nodes([{**body, "status": {"allocatable": ROOM, "capacity": ROOM}}])
        asyncio.run(_scene(plane, upstream, tmp_path, sent))


async def _scene(
    plane: controlplane.ControlPlane, upstream: Upstream, directory: Path, sent: signal.Signals
) -> None:
    async with staged.watching(plane, Soaks(1)) as watch:
        with running(directory, plane, *staged.words(upstream)) as (process, log):
            await watch.until(lambda: len(watch.on("1")) == NODES, log)
            for number in range(NODES):
                path = "/api/v1/namespaces/default/pods"
                await asyncio.to_thread(plane.request, "POST", path, tenant(staged.name_of(number)))
            await watch.until(lambda: len(watch.on("tenant")) == NODES, log)
            tenants = watch.uids("tenant")
            upstream.commit(files("2"))
            await watch.until(lambda: len(watch.uids("2")) == NODES, log)
            process.send_signal(sent)
            await asyncio.to_thread(process.wait)
        since = time.monotonic()
        assert all(not pod.bound for tag, pod in watch.pods.values() if tag == "2")
        await watch.until(lambda: len(watch.on("2")) == NODES)
        assert time.monotonic() - since < ENDS / 1000 + SLACK
        _is_unharmed(watch, tenants)


def _is_unharmed(watch: PodWatch, tenants: set[str]) -> None:
    """No pod of a tenant was evicted, and each node has had one pod of each template."""
    assert watch.uids("tenant") == tenants
    made = sorted((tag, node) for tag, node in watch.created.values() if tag != "tenant")
    names = [staged.name_of(number) for number in range(NODES)]
    assert made == [(tag, node) for tag in ("1", "2") for node in names]
