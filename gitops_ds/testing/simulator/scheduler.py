"""Binds pods to nodes by node affinity, selector, anti-affinity by node, taints, host ports, and
free CPU, memory and pods.

A pod that fits on no node stays Pending with a reason; one with scheduling gates waits until they
are removed. The only score is the number of pods, and there is no preemption: a pod of higher
priority waits like every other. A pod that is nominated for a node (`status.nominatedNodeName`),
also one with gates, counts there for every pod of its priority or a lower one
(RunFilterPluginsWithNominatedPods in pkg/scheduler/framework/runtime/framework.go).
https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from gitops_ds.core import names
from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import FreeCapacity
from gitops_ds.core.live import Node
from gitops_ds.core.objects import POD, Body
from gitops_ds.kube.apimachinery import capacity, label_selector, node_eligibility, nodes, pods
from gitops_ds.kube.apimachinery.capacity import Amounts, Port
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.testing.simulator import conditions
from gitops_ds.testing.simulator.server import Server
from gitops_ds.testing.simulator.store import StoredChange

NAME = "default-scheduler"
_Name = tuple[str, str]


@dataclass(slots=True)
class _Load:
    """The requests of the pods on one node."""

    pods: dict[_Name, Body] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    ports: Counter[Port] = field(default_factory=Counter)


class Scheduler:
    """The scheduler. It must receive every change of pods and nodes, in order, before `bind`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._nodes: dict[str, tuple[Node, Amounts]] = {}
        self._loads: dict[str, _Load] = {}
        self._placed: dict[_Name, str] = {}
        self._waiting: dict[_Name, Body] = {}
        self._due: dict[_Name, None] = {}
        self._gated = set[_Name]()
        self._nominated: dict[_Name, tuple[str, Body]] = {}

    def saw_node(self, change: StoredChange) -> None:
        """Handles a new, changed or deleted node."""
        name = change.body["metadata"]["name"]
        if change.type is EventType.DELETED:
            self._nodes.pop(name, None)
            return
        load = self._nodes.get(name)
        now = (nodes.node_of(change.body), capacity.allocatable(change.body))
        if now != load:
            self._nodes[name] = now
            self._retry(name)

    def saw_pod(self, change: StoredChange) -> None:
        """Handles a new, changed or deleted pod."""
        metadata, spec = change.body["metadata"], change.body["spec"]
        name = (metadata["namespace"], metadata["name"])
        on = spec.get("nodeName")
        ended = (change.body.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        leaves = change.type is EventType.DELETED or ended or "deletionTimestamp" in metadata
        if leaves:
            self._waiting.pop(name, None)
            self._gated.discard(name)
        self._nominate(name, None if leaves or on else change.body)
        before = self._placed.get(name)
        if before is not None and before != on:
            self._account(name, before, None)
        if on:
            self._waiting.pop(name, None)
            self._account(
                name, on, None if change.type is EventType.DELETED or ended else change.body
            )
        elif spec.get("schedulingGates"):
            if not leaves:
                self._gated.add(name)
        elif change.type is EventType.ADDED or name in self._gated or (before and not leaves):
            # A restore of etcd makes a bound pod an unbound one, which the scheduler adds to its
            # queue (addAllEventHandlers in pkg/scheduler/eventhandlers.go).
            self._gated.discard(name)
            if spec.get("schedulerName", NAME) == NAME:
                self._waiting[name] = change.body
                self._due[name] = None
        elif name in self._waiting:
            self._waiting[name] = change.body

    def _nominate(self, name: _Name, body: Body | None) -> None:
        """Stores the nomination of a pod, or ends it."""
        before = self._nominated.pop(name, None)
        node = str((body.get("status") or {}).get("nominatedNodeName") or "") if body else ""
        if body is not None and node:
            self._nominated[name] = node, body
        if before is not None and before[0] != node:
            self._retry(before[0])

    def _account(self, name: _Name, node: str, body: Body | None) -> None:
        load = self._loads.setdefault(node, _Load())
        is_counted = name in load.pods
        if is_counted == (body is not None):
            if body is not None:
                load.pods[name] = body  # its labels may be others
            return
        taken = load.pods.pop(name) if body is None else body
        sign = -1 if body is None else 1
        for resource, amount in capacity.requested(taken["spec"]).items():
            load.used[resource] += sign * amount
        for port in capacity.host_ports(taken["spec"]):
            load.ports[port] += sign
        if body is None:
            del self._placed[name]
            self._retry(node)
        else:
            load.pods[name], self._placed[name] = body, node

    def _retry(self, node: str) -> None:
        for name, body in self._waiting.items():
            if pods.target(body["spec"]) in ("", node):
                self._due[name] = None

    def bind(self) -> None:
        """Binds every waiting pod that fits on a node."""
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            if (body := self._waiting.get(name)) is not None:
                self._place(name, body)

    def _place(self, name: _Name, body: Body) -> None:
        spec = body["spec"]
        placer = Placer(
            "",
            spec.get("nodeSelector") or {},
            node_eligibility.required_terms(spec),
            tuple(spec.get("tolerations") or ()),
        )
        reasons: Counter[str] = Counter()
        for node in self._candidates(pods.target(spec)):
            reason = self._refusal(placer, node, body)
            if not reason:
                del self._waiting[name]
                self._account(name, node, body)
                self._bound(body, node)
                return
            reasons[reason] += 1
        others = len(self._nodes) - reasons.total()
        if others:
            reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] += others
        summary = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
        message = f"0/{len(self._nodes)} nodes are available: {summary or 'there are none'}."
        status = conditions.put(
            body, "PodScheduled", "False", self._server.now(), ("Unschedulable", message)
        )
        # A failed attempt clears the nomination (clearNominatedNode in schedule_one.go).
        self._server.put(POD, body, status=_without_nomination(status))

    def _bound(self, body: Body, node: str) -> None:
        status = conditions.put(body, "PodScheduled", "True", self._server.now())
        spec = {**body["spec"], "nodeName": node}
        self._server.put(POD, body, spec=spec, status=_without_nomination(status))

    def _candidates(self, target: str) -> list[str]:
        if target:
            return [target] if target in self._nodes else []
        return sorted(
            self._nodes,
            key=lambda name: (len(self._loads[name].pods) if name in self._loads else 0, name),
        )

    def _refusal(self, placer: Placer, name: str, body: Body) -> str:
        """Why the pod can't run on the node; empty if it can."""
        node, room = self._nodes[name]
        if not placer.selects(node):
            return "node(s) didn't match Pod's node affinity/selector"
        if placer.place(node) is not Placement.RUN:
            return "node(s) had untolerated taint(s)"
        load = self._loads.get(name, _Load())
        if any(_repels(body, other) for other in load.pods.values()):
            return "node(s) didn't match pod anti-affinity rules"
        others = [other["spec"] for other in self._nominated_before(name, body)]
        used = load.used.copy()
        for spec in others:
            used.update(capacity.requested(spec))
        free = {resource: amount - used[resource] for resource, amount in room.items()}
        taken = [port for port, count in load.ports.items() if count > 0]
        taken += (port for spec in others for port in capacity.host_ports(spec))
        return capacity.misfit(
            capacity.requested(body["spec"]),
            capacity.host_ports(body["spec"]),
            FreeCapacity(free, tuple(taken)),
        )

    def _nominated_before(self, node: str, body: Body) -> Iterator[Body]:
        """The other pods that are nominated for a node, of at least the priority of a pod."""
        for on, other in self._nominated.values():
            is_other = other["metadata"]["uid"] != body["metadata"]["uid"]
            if on == node and is_other and _priority(other) >= _priority(body):
                yield other


def _without_nomination(status: Body) -> Body:
    return {name: value for name, value in status.items() if name != "nominatedNodeName"}


def _repels(body: Body, other: Body) -> bool:
    """Whether a required anti-affinity of a pod, by the names of nodes, excludes another one beside
    it. As in Kubernetes, one that is terminating counts.
    """
    apart = (body["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    mine, metadata = body["metadata"], other["metadata"]
    return mine["namespace"] == metadata["namespace"] and any(
        label_selector.all_match(
            label_selector.of_label_selector(term["labelSelector"]), metadata.get("labels") or {}
        )
        for term in apart.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        if term["topologyKey"] == names.HOSTNAME
    )


def _priority(body: Body) -> int:
    return int(body["spec"].get("priority") or 0)
