"""Watches a DaemonSet's pods on the server itself, and reports forbidden actions of a controller.

Its input is the state of the server and the pods that the controller deleted. A controller may be
late, and is not at fault for state that it could not observe. So a pod is only protected after it
was ready for `LATE` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gitops_ds.core.cluster import EventType, WatchEvent
from gitops_ds.core.objects import NODE, POD, Body, Resource
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import pods
from gitops_ds.testing import simulator

# seconds; the longest outage of a scenario and the longest wait of a watch that failed fit in
LATE = 120.0
SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TEAM = "team"  # the key of the taints that people set here, and no agent tolerates


@dataclass(frozen=True)
class _Pod:
    node: str
    owner: str
    live: bool
    ready_from: float | None = None
    ready_until: float = float("-inf")  # when it ceased to be ready

    def ready_recently(self, now: float) -> bool:
        """Whether a controller that is late may take it for ready."""
        return self.live and (self.ready_from is not None or now - self.ready_until < LATE)


@dataclass
class Observer:
    """`most_down`: nodes that may be without an available pod by the controllers' doing;
    `most_pods`: live pods of a node.
    """

    most_down: int
    most_pods: int  # one more where two controllers act at once, which know different things
    # the names of pods that a controller deleted
    deleted_by_controller: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    _pods: dict[str, _Pod] = field(default_factory=dict)
    # since when a node is eligible for an agent
    _fit_from: dict[str, float] = field(default_factory=dict)
    # when a pod that was ready went, by node
    _lost_at: dict[str, float] = field(default_factory=dict)
    # nodes without a ready pod by a controller's doing
    _taken: set[str] = field(default_factory=set)

    async def follow(self, client: simulator.Client) -> None:
        """Follows nodes and pods until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(client, NODE, self.handle_node))
            group.create_task(_follow(client, POD, self.handle_pod))

    def handle_node(self, event: WatchEvent) -> None:
        """Handles a change of a node."""
        name = event.object["metadata"]["name"]
        if event.type is EventType.DELETED or not fit(event.object):
            self._fit_from.pop(name, None)
            self._taken.discard(name)
        else:
            self._fit_from.setdefault(name, _now())

    def handle_pod(self, event: WatchEvent) -> None:
        """Handles a change of a pod."""
        metadata, now = event.object["metadata"], _now()
        before = self._pods.get(metadata["uid"])
        after = self._pods[metadata["uid"]] = _seen(event, before, now)
        if before is not None and before.ready_from is not None and after.ready_from is None:
            self._lost_at[before.node] = now
            if (
                not after.live
                and metadata["name"] in self.deleted_by_controller
                and now - before.ready_from > LATE
            ):
                self._ended(metadata["name"], before.node, now)
        if after.ready_from is not None:
            self._taken.discard(after.node)
        if after.live and not (before and before.live):
            self._count(after, now)
        if event.type is EventType.DELETED:
            del self._pods[metadata["uid"]]

    def _count(self, pod: _Pod, now: float) -> None:
        there = [
            other
            for other in self._pods.values()
            if other.live and (other.node, other.owner) == (pod.node, pod.owner)
        ]
        if len(there) > self.most_pods:
            self.wrong.append(f"{now:g} s: {len(there)} live pods on {pod.node}")

    def _ended(self, name: str, node: str, now: float) -> None:
        """A controller ended a pod that had been ready for long: was that one too many?"""
        if not self._long_fit(node, now) or any(
            pod.node == node and pod.ready_recently(now) for pod in self._pods.values()
        ):
            return
        self._taken.add(node)
        ready = {pod.node for pod in self._pods.values() if pod.ready_from is not None}
        ready |= {there for there, at in self._lost_at.items() if now - at < LATE}
        down = {
            there for there in self._fit_from if self._long_fit(there, now)
        } - ready | self._taken
        if len(down) > self.most_down:
            self.wrong.append(
                f"{now:g} s: {name} was ended on {node}, and {len(down)} nodes are down: "
                f"{sorted(down)}"
            )

    def _long_fit(self, node: str, now: float) -> bool:
        return node in self._fit_from and now - self._fit_from[node] > LATE


def fit(node: Body) -> bool:
    """Whether a node is eligible for an agent. Agents tolerate a cordon, and existing pods a silent
    node.
    """
    taints = {
        (taint["key"], taint["effect"]) for taint in (node.get("spec") or {}).get("taints") or ()
    }
    return not any(
        key == TEAM or (key in SILENT and effect == "NoSchedule") for key, effect in taints
    )


async def _follow(
    client: simulator.Client, resource: Resource, hear: Callable[[WatchEvent], None]
) -> None:
    since = ""
    while True:
        async for event in client.watch(resource, since):
            since = event.version
            if event.type is not EventType.BOOKMARK:
                hear(event)


def _seen(event: WatchEvent, before: _Pod | None, now: float) -> _Pod:
    pod = pods.pod_of(event.object)
    claimed = pod.owner is not None and pod.labels.get("app") == "agent"
    live = event.type is not EventType.DELETED and not pod.terminating and not pod.ended and claimed
    seen = _Pod(pod.node, pod.owner.uid if pod.owner else "", live)
    if live and pod.ready:
        return replace(
            seen,
            ready_from=now if before is None or before.ready_from is None else before.ready_from,
        )
    if before is None:
        return seen
    return replace(seen, ready_until=before.ready_until if before.ready_from is None else now)


def _now() -> float:
    return asyncio.get_running_loop().time()
