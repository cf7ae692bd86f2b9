"""Nodes that are added, removed, fail and return, with their taints and pods.

The node lifecycle, taint eviction and pod garbage collection controllers.
https://kubernetes.io/docs/concepts/architecture/nodes/#condition and
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gitops_ds.core.cluster import EventType
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import NODE, POD, Body
from gitops_ds.kube.apimachinery import node_eligibility
from gitops_ds.testing.simulator import conditions
from gitops_ds.testing.simulator.registry_strategy import DeleteOptions
from gitops_ds.testing.simulator.server import Server
from gitops_ds.testing.simulator.store import StoredChange

_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_OURS = (_NOT_READY, _UNREACHABLE, _UNSCHEDULABLE)
# seconds without a heartbeat until a node is Unknown (node-monitor-grace-period)
MISSED_AFTER = 50.0
_FORGOTTEN_AFTER = 40.0  # seconds until the pods of a deleted node are collected


class NodeSpec(msgspec.Struct, frozen=True):
    """A new node: its name, additional labels, taints, and its capacity for pods."""

    name: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    system: str = "linux"
    machine: str = "amd64"
    room: Mapping[str, str] = msgspec.field(
        default_factory=lambda: {"cpu": "8", "memory": "32Gi", "pods": "110"}
    )


def body_of(spec: NodeSpec, version: str) -> dict[str, Any]:
    """The Node object, not yet ready."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": spec.system,
        "kubernetes.io/arch": spec.machine,
    }
    taints = [_taint(t.key, t.effect, t.value) for t in spec.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": {**labels, **spec.labels}},
        "spec": {"taints": taints} if taints else {},
        "status": {
            "capacity": dict(spec.room),
            "allocatable": dict(spec.room),
            "nodeInfo": {
                "kubeletVersion": version,
                "operatingSystem": spec.system,
                "architecture": spec.machine,
                "bootID": f"{spec.name}-0",
            },
        },
    }


class Lifecycle:
    """The controllers of nodes. It must receive every change of nodes and pods, in order."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # by node, and by the uid of a pod to evict
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pods: dict[str, dict[str, Body]] = {}  # node -> uid -> pod
        self._boots: dict[str, str] = {}  # the boot ids of nodes

    def stop(self) -> None:
        """Cancels all timers."""
        for timer in self._timers.values():
            timer.cancel()

    def set_ready(self, node: str, value: str, reason: str) -> None:
        """Sets a node's Ready condition, as its kubelet or the node controller does."""
        body = self._server.store.get(NODE, "", node)
        if body is not None:
            self._server.put(
                NODE,
                body,
                status=conditions.put(body, "Ready", value, self._server.now(), (reason, "")),
            )

    def booted(self, node: str) -> None:
        """Reports another boot id, and the node as not ready until its next heartbeat."""
        self._boots[node] = f"{node}-{int(self._server.now())}"
        self._report_boot(node)
        self.set_ready(node, "False", "KubeletNotReady")

    def _report_boot(self, node: str) -> None:
        body, boot = self._server.store.get(NODE, "", node), self._boots.get(node)
        if body is not None and boot is not None:
            status = body["status"]
            if status["nodeInfo"].get("bootID") != boot:
                info = {**status["nodeInfo"], "bootID": boot}
                self._server.put(NODE, body, status={**status, "nodeInfo": info})

    def heartbeats_lost(self, node: str) -> None:
        """No heartbeat arrives from now on: Ready becomes Unknown after MISSED_AFTER."""
        self._later(
            node, MISSED_AFTER, lambda: self.set_ready(node, "Unknown", "NodeStatusUnknown")
        )

    def heartbeat(self, node: str) -> None:
        """Handles a heartbeat: the node is ready."""
        self._cancel(node)
        self._report_boot(node)  # a restore of etcd has an earlier one
        self.set_ready(node, "True", "KubeletReady")

    def saw_node(self, change: StoredChange) -> None:
        """Handles a new, changed or deleted node."""
        name = change.body["metadata"]["name"]
        if change.type is EventType.DELETED:
            self._later(name, _FORGOTTEN_AFTER, lambda: self._forget(name))
            return
        taints = self._taints(change.body)
        spec = {k: v for k, v in (change.body.get("spec") or {}).items() if k != "taints"}
        if taints != ((change.body.get("spec") or {}).get("taints") or []):
            self._server.put(NODE, change.body, spec={**spec, "taints": taints} if taints else spec)
            return
        for pod in list(self._pods.get(name, {}).values()):
            self._evict(pod, taints)
            if not conditions.true(change.body, "Ready") and conditions.true(pod, "Ready"):
                status = conditions.put(
                    pod, "Ready", "False", self._server.now(), ("NodeNotReady", "")
                )
                self._server.put(POD, pod, status=status)

    def _taints(self, node: Body) -> list[dict[str, Any]]:
        spec = node.get("spec") or {}
        kept = [taint for taint in spec.get("taints") or () if taint["key"] not in _OURS]
        listed = (node.get("status") or {}).get("conditions") or ()
        ready = next((c["status"] for c in listed if c["type"] == "Ready"), "False")
        if spec.get("unschedulable"):
            kept.append(_taint(_UNSCHEDULABLE, "NoSchedule"))
        if ready != "True":
            key = _UNREACHABLE if ready == "Unknown" else _NOT_READY
            kept += [_taint(key, "NoSchedule"), _taint(key, "NoExecute")]
        return kept

    def saw_pod(self, change: StoredChange) -> None:
        """Handles a new, changed or deleted pod."""
        pod = change.body
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if not node:
            return
        if change.type is EventType.DELETED:
            self._pods.get(node, {}).pop(uid, None)
            self._cancel(uid)
            return
        new = uid not in self._pods.setdefault(node, {})
        self._pods[node][uid] = pod
        body = self._server.store.get(NODE, "", node)
        if new and body is not None:
            self._evict(pod, (body.get("spec") or {}).get("taints") or [])
        elif new:
            self._later(node, _FORGOTTEN_AFTER, lambda: self._forget(node))

    def _evict(self, pod: Body, taints: list[dict[str, Any]]) -> None:
        """Evicts the pod when its toleration of a NoExecute taint ends, unless the taint was
        removed.
        """
        uid = pod["metadata"]["uid"]
        seconds = _patience(pod, [t for t in taints if t["effect"] == "NoExecute"])
        if seconds is None or "deletionTimestamp" in pod["metadata"]:
            self._cancel(uid)
        elif uid not in self._timers:
            self._later(uid, seconds, lambda: self._delete(pod, None))

    def _forget(self, node: str) -> None:
        if self._server.store.get(NODE, "", node) is None:
            for pod in list(self._pods.get(node, {}).values()):
                self._delete(pod, 0)

    def _delete(self, pod: Body, grace: int | None) -> None:
        metadata = pod["metadata"]
        body = self._server.store.get(POD, metadata["namespace"], metadata["name"])
        if body is not None and body["metadata"]["uid"] == metadata["uid"]:
            self._server.delete(
                POD, metadata["namespace"], metadata["name"], DeleteOptions(grace=grace)
            )

    def _later(self, key: str, seconds: float, step: Callable[[], None]) -> None:
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, step)

    def _cancel(self, key: str) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()


def _patience(pod: Body, taints: list[dict[str, Any]]) -> float | None:
    """The seconds for which the pod tolerates these taints; None: indefinitely."""
    shortest: float | None = None
    for taint_body in taints:
        taint = Taint(taint_body["key"], taint_body["effect"], taint_body.get("value", ""))
        fitting = [
            t for t in pod["spec"].get("tolerations") or () if node_eligibility.tolerates(t, taint)
        ]
        if not fitting:
            return 0.0
        limits = [t["tolerationSeconds"] for t in fitting if t.get("tolerationSeconds") is not None]
        if limits:
            shortest = min([*limits, *([] if shortest is None else [shortest])])
    return shortest


def _taint(key: str, effect: str, value: str = "") -> dict[str, Any]:
    return (
        {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}
    )
