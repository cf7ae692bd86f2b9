"""A full cluster in which nothing happens: 1,000 DaemonSets on 1,000 nodes, twenty pods on each
node, with the heartbeats of the kubelets; without controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.apply import TEMPLATE
from gitops_ds.client import config, rest
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Resource
from tests import controlplane, gitservers
from tests.controlplane import ControlPlane, Wanted

NODES = int(os.environ.get("GITOPS_DS_BENCH_NODES", "1000"))
AGENTS = int(os.environ.get("GITOPS_DS_BENCH_COUNT", "1000"))
# so often a kubelet writes the status of its node when nothing changes (nodeStatusReportFrequency)
EVERY_SECONDS = 300
SLOTS = 50  # an agent runs on every fiftieth node
HASH = "5d8c7b6f9"
PROGRAM = Path(sys.executable).with_name("gitops-ds")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[ControlPlane, gitservers.Upstream]]:
    """A cluster in which everything runs, and the repository that it runs from."""
    plane = _audited_plane(folder)
    upstream = gitservers.Upstream(folder / "fleet")
    account = "      serviceAccountName: default\n"
    placed = {n: f'{account}      nodeSelector: {{slot: "{n % SLOTS}"}}\n' for n in range(AGENTS)}
    files = {
        f"agent-{n:04d}.yaml": TEMPLATE.format(n=n).replace(account, placed[n]) for n in placed
    }
    upstream.commit(files, "a thousand agents")
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
    """Nodes, revisions and pods as the controllers, the scheduler and the kubelets leave them when
    all is well.
    """
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
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _zulu()}
        room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
        node_status = {"conditions": [ready], "allocatable": room, "capacity": room}
        nodes = [controlplane.node(f"node-{n:04d}", {"slot": str(n % SLOTS)}) for n in range(NODES)]
        await asyncio.gather(*(put(cluster, NODE, body, node_status) for body in nodes))
        agents = (await cluster.list(DAEMONSET)).items
        await asyncio.gather(
            *(put(cluster, CONTROLLER_REVISION, _revision(agent)) for agent in agents)
        )
        pods = [
            (_pod(agent, node), ready)
            for agent in agents
            for node in nodes
            if _runs_on(agent, node)
        ]
        await asyncio.gather(
            *(put(cluster, POD, pod, _pod_status(pod, ready)) for pod, ready in pods)
        )
        count = NODES // SLOTS
        names = (
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        )
        status = {**dict.fromkeys(names, count), "numberMisscheduled": 0, "observedGeneration": 1}
        for agent in agents:
            await cluster.patch(
                DAEMONSET,
                "default",
                agent["metadata"]["name"],
                {"status": status},
                subresource="status",
            )


def _runs_on(agent: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    return bool(
        agent["spec"]["template"]["spec"]["nodeSelector"]["slot"]
        == node["metadata"]["labels"]["slot"]
    )


def _owned(agent: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    kept = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": agent["metadata"]["name"],
        "uid": agent["metadata"]["uid"],
    }
    owner = {**kept, "controller": True, "blockOwnerDeletion": True}
    labels = {**agent["spec"]["template"]["metadata"]["labels"], **labels}
    return {
        "name": f"{agent['metadata']['name']}-{name}",
        "namespace": "default",
        "labels": labels,
        "ownerReferences": [owner],
    }


def _revision(agent: Mapping[str, Any]) -> dict[str, Any]:
    data = {"spec": {"template": {**agent["spec"]["template"], "$patch": "replace"}}}
    metadata = _owned(agent, HASH, {"controller-revision-hash": HASH})
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": 1,
    }


def _pod(agent: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    name = node["metadata"]["name"]
    metadata = _owned(
        agent, name, {"controller-revision-hash": HASH, "pod-template-generation": "1"}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**agent["spec"]["template"]["spec"], "nodeName": name},
    }


def _pod_status(pod: Mapping[str, Any], ready: Mapping[str, str]) -> dict[str, Any]:
    state = {"running": {"startedAt": ready["lastTransitionTime"]}}
    some = {
        "ready": True,
        "started": True,
        "restartCount": 0,
        "imageID": "sha256:0",
        "state": state,
    }
    containers = [
        {**some, "name": one["name"], "image": one["image"]} for one in pod["spec"]["containers"]
    ]
    conditions = [
        {**ready, "type": type}
        for type in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": containers,
        "podIP": "10.1.2.3",
        "hostIP": "10.9.8.7",
    }


def _heartbeats(plane: ControlPlane, stopping: threading.Event) -> None:
    """What kubelets do in a cluster in which nothing happens."""
    names = [f"node-{n:04d}" for n in range(NODES)]
    while True:
        for name in names:
            if stopping.wait(EVERY_SECONDS / NODES):
                return
            beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": _zulu()}
            kind = "application/strategic-merge-patch+json"
            with contextlib.suppress(OSError):
                plane.request(
                    "PATCH",
                    f"/api/v1/nodes/{name}/status",
                    {"status": {"conditions": [beat]}},
                    kind,
                )


def _zulu() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
