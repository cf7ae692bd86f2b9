"""The objects of a cluster in which all agents run, as written by the controllers, the scheduler
and the kubelets.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.apply import TEMPLATE
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD
from gitops_ds.daemonset import pod_changes
from gitops_ds.kube.apimachinery import node_eligibility
from gitops_ds.testing.simulator.server import Server
from tests import controlplane

HASH = "5d8c7b6f9"
IMAGES = 50  # images in a node's status, a kubelet's maximum (nodeStatusMaxImages)
# the field manager and the subresource of their writes
KUBELET, CONTROLLER = ("kubelet", "status"), ("kube-controller-manager", "status")
_ACCOUNT = "      serviceAccountName: default\n"
_COUNTERS = (
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


@dataclass(frozen=True)
class Fleet:
    """Nodes and agents; an agent runs on each node of its slot, which is every `slots`-th node."""

    nodes: int
    agents: int
    slots: int = 1

    @property
    def files(self) -> Mapping[str, str]:
        """The repository: a file for each agent."""
        return {
            f"agent-{n:04d}.yaml": TEMPLATE.format(n=n).replace(
                _ACCOUNT, f'{_ACCOUNT}      nodeSelector: {{slot: "{n % self.slots}"}}\n'
            )
            for n in range(self.agents)
        }

    @property
    def node_bodies(self) -> Iterator[dict[str, Any]]:
        """The nodes, without a status."""
        for n in range(self.nodes):
            yield controlplane.node(node_name(n), {"slot": str(n % self.slots)})

    @property
    def nodes_of_an_agent(self) -> int:
        """The number of nodes on which each agent runs."""
        return self.nodes // self.slots


def node_name(number: int) -> str:
    return f"node-{number:04d}"


def node_status() -> dict[str, Any]:
    room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    images = [
        {
            "names": [
                f"registry.example.com/team-{n}/image-{n}@sha256:{n:064x}",
                f"registry.example.com/team-{n}/image-{n}:1.{n}.0",
            ],
            "sizeBytes": 100_000_000 + n,
        }
        for n in range(IMAGES)
    ]
    return {"conditions": [_ready()], "allocatable": room, "capacity": room, "images": images}


def heartbeat() -> dict[str, Any]:
    """The patch of a node's status that a kubelet sends when nothing changes."""
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": now()}
    return {"status": {"conditions": [beat]}}


def runs_on(agent: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    return bool(
        agent["spec"]["template"]["spec"]["nodeSelector"]["slot"]
        == node["metadata"]["labels"]["slot"]
    )


def daemonset_status(count: int) -> dict[str, Any]:
    return {**dict.fromkeys(_COUNTERS, count), "numberMisscheduled": 0, "observedGeneration": 1}


def revision(agent: Mapping[str, Any]) -> dict[str, Any]:
    data = {"spec": {"template": {**agent["spec"]["template"], "$patch": "replace"}}}
    metadata = _owned(agent, HASH, {"controller-revision-hash": HASH})
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": 1,
    }


def pod(agent: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    name = node["metadata"]["name"]
    metadata = _owned(
        agent, name, {"controller-revision-hash": HASH, "pod-template-generation": "1"}
    )
    template = agent["spec"]["template"]["spec"]
    spec = {
        **template,
        "affinity": pod_changes.pinned_to({}, name),
        "tolerations": node_eligibility.daemon_tolerations(template),
        "nodeName": name,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_status(pod: Mapping[str, Any]) -> dict[str, Any]:
    ready = _ready()
    common = {
        "ready": True,
        "started": True,
        "restartCount": 0,
        "imageID": "sha256:0",
        "state": {"running": {"startedAt": ready["lastTransitionTime"]}},
    }
    containers = [
        {**common, "name": each["name"], "image": each["image"]}
        for each in pod["spec"]["containers"]
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


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ready() -> dict[str, str]:
    return {"type": "Ready", "status": "True", "lastTransitionTime": now()}


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


def prepare_simulated(server: Server, fleet: Fleet) -> None:
    """Creates the nodes of a simulated cluster, before agents are applied."""
    server.begin()
    for body in fleet.node_bodies:
        server.create(NODE, body, "kubelet")
        status = {"status": node_status()}
        server.patch(NODE, ("", body["metadata"]["name"]), status, PatchType.STRATEGIC, KUBELET)


def fill_simulated(server: Server, fleet: Fleet) -> None:
    """Writes the dependents of the DaemonSets of a simulated cluster. One pod of each agent is
    created; the others are copies with their own name, node and uid.
    """
    nodes = server.store.all(NODE)
    for agent in server.store.all(DAEMONSET):
        where = agent["metadata"]["namespace"], agent["metadata"]["name"]
        server.create(CONTROLLER_REVISION, revision(agent), CONTROLLER[0])
        first, *others = (node for node in nodes if runs_on(agent, node))
        body = server.create(POD, pod(agent, first), CONTROLLER[0])
        name = "default", body["metadata"]["name"]
        status = {"status": pod_status(body)}
        body = server.patch(POD, name, status, PatchType.MERGE, KUBELET)
        for node in others:
            own = pod(agent, node)
            metadata = {
                **body["metadata"],
                "name": own["metadata"]["name"],
                "uid": str(uuid.uuid4()),
            }
            server.store.put(
                POD, {**body, "metadata": metadata, "spec": {**body["spec"], **_place(own)}}
            )
        counts = {"status": daemonset_status(1 + len(others))}
        server.patch(DAEMONSET, where, counts, PatchType.MERGE, CONTROLLER)


def _place(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {field: pod["spec"][field] for field in ("affinity", "nodeName")}
