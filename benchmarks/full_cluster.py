"""A full, idle cluster: 1,000 DaemonSets on 1,000 nodes, twenty pods on each node, with the
heartbeats of the kubelets; without controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import cluster_objects
from benchmarks.cluster_objects import Fleet
from benchmarks.running_service import PROGRAM
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Resource
from gitops_ds.kube.client import config, rest
from tests import gitservers
from tests.controlplane import ControlPlane, Wanted

NODES = int(os.environ.get("GITOPS_DS_BENCH_NODES", "1000"))
AGENTS = int(os.environ.get("GITOPS_DS_BENCH_COUNT", "1000"))
# seconds between a kubelet's writes of an unchanged status of its node (nodeStatusReportFrequency)
EVERY_SECONDS = 300
FLEET = Fleet(NODES, AGENTS, slots=50)  # an agent runs on every fiftieth node


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[ControlPlane, gitservers.Upstream]]:
    """A cluster in which everything runs, and its repository."""
    plane = _audited_plane(folder)
    upstream = gitservers.Upstream(folder / "fleet")
    upstream.commit(FLEET.files, "a thousand agents")
    stopping = threading.Event()
    beats = threading.Thread(target=_heartbeats, args=(plane, stopping))
    try:
        plane.start()
        _authorize(plane, folder / "kubeconfig")
        began = time.perf_counter()
        environment = {
            **gitservers.GIT_ENVIRONMENT,
            "GITOPS_DS_CACHE": str(folder / "other"),
            "KUBECONFIG": str(plane.kubeconfig),
        }
        words: list[str | Path] = [PROGRAM, "apply", f"file://{upstream.path}", "-q"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
        asyncio.run(_fill(plane))
        print(
            f"{AGENTS} DaemonSets on {NODES} nodes after {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        beats.start()
        yield plane, upstream
    finally:
        stopping.set()
        if beats.is_alive():
            beats.join()
        plane.stop()


def _audited_plane(folder: Path) -> ControlPlane:
    """A control plane with an audit log of the requests of the service."""
    policy = folder / "policy.json"
    user = "system:serviceaccount:default:service"
    rules = [{"level": "Metadata", "users": [user]}, {"level": "None"}]
    head = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
    }
    policy.write_text(json.dumps({**head, "rules": rules}))
    audit = (
        "--audit-policy-file",
        str(policy),
        "--audit-log-path",
        str(folder / "plane/audit.log"),
    )
    return ControlPlane(folder / "plane", Wanted(controllers=False, api_server_options=audit))


def _authorize(plane: ControlPlane, path: Path) -> None:
    """Writes the kubeconfig of the service: a service account with all permissions."""
    plane.kubectl("create", "serviceaccount", "default")
    plane.kubectl("create", "serviceaccount", "service")
    plane.kubectl(
        "create",
        "clusterrolebinding",
        "service",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:service",
    )
    kubeconfig = json.loads(plane.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {
        "token": plane.kubectl("create", "token", "service", "--duration=3h").strip()
    }
    path.write_text(json.dumps(kubeconfig))


async def _fill(plane: ControlPlane) -> None:
    turn = asyncio.Semaphore(32)

    async def put(
        cluster: rest.HttpCluster, resource: Resource, body: Any, status: Any = None
    ) -> None:
        async with turn:
            made = await cluster.create(resource, body)
            if status is not None:
                where = made["metadata"].get("namespace", ""), made["metadata"]["name"]
                await cluster.patch(resource, *where, {"status": status}, subresource="status")

    async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
        nodes = list(FLEET.node_bodies)
        node_status = cluster_objects.node_status()
        await asyncio.gather(*(put(cluster, NODE, body, node_status) for body in nodes))
        agents = (await cluster.list(DAEMONSET)).items
        revisions = map(cluster_objects.revision, agents)
        await asyncio.gather(*(put(cluster, CONTROLLER_REVISION, body) for body in revisions))
        pods = [
            cluster_objects.pod(agent, node)
            for agent in agents
            for node in nodes
            if cluster_objects.runs_on(agent, node)
        ]
        await asyncio.gather(
            *(put(cluster, POD, pod, cluster_objects.pod_status(pod)) for pod in pods)
        )
        status = cluster_objects.daemonset_status(FLEET.nodes_of_an_agent)
        for agent in agents:
            await cluster.patch(
                DAEMONSET,
                "default",
                agent["metadata"]["name"],
                {"status": status},
                subresource="status",
            )


def _heartbeats(plane: ControlPlane, stopping: threading.Event) -> None:
    """The heartbeats of kubelets in an idle cluster."""
    while True:
        for number in range(NODES):
            if stopping.wait(EVERY_SECONDS / NODES):
                return
            with contextlib.suppress(OSError):
                plane.request(
                    "PATCH",
                    f"/api/v1/nodes/{cluster_objects.node_name(number)}/status",
                    cluster_objects.heartbeat(),
                    "application/strategic-merge-patch+json",
                )
