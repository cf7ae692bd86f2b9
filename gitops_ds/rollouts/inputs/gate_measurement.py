"""The measurement of gates: when each one is measured, and the readings of the cluster itself: the
memory of the new pods, and the other pods on touched nodes.

The memory is that of the metrics API, which `kubectl top` shows: it needs no additional server, and
a pod without a result means no data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gitops_ds.core import names
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.errors import ClusterError
from gitops_ds.core.objects import POD, Body, Key, Resource
from gitops_ds.core.rollouts.rollout_gates import (
    GateRequest,
    GateSample,
    MemoryRequest,
    NeighboursRequest,
    Probe,
    PrometheusRequest,
    Reading,
    WebhookRequest,
)
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import pod_cause, pods, quantities


class GateMeter(Protocol):
    """The protocol of a meter. `interval` is the seconds from the end of a measurement to the next
    one.
    """

    @property
    def interval(self) -> float:
        """In seconds."""
        ...

    async def measure(self, request: GateRequest) -> Reading:
        """One measurement in bounded time; never raises."""
        ...

    def forget(self, key: Key) -> None:
        """Drops the state of a DaemonSet without measured gates."""
        ...


@dataclass(slots=True)
class _Measured:
    """One probe: its next measurement, and the last reading."""

    request: GateRequest
    reading: Reading | None = None
    polled: bool = False


class GatePoller:
    """The readings of the gates of each DaemonSet, measured periodically, outside of the decisions.
    No part of them must survive a restart.

    `changed` is called after each reading.
    """

    def __init__(self, meter: GateMeter, changed: Callable[[Key], None]) -> None:
        self.meter, self._changed = meter, changed
        self._measured: dict[Key, dict[Probe, _Measured]] = {}
        self._revisions: dict[Key, str] = {}
        self._wake = asyncio.Event()

    def follow(self, key: Key, revision: str, requests: Sequence[GateRequest]) -> None:
        """Sets the measurements for a DaemonSet. Readings of another target or stage are
        dropped.
        """
        before = self._measured.pop(key, {}) if self._revisions.get(key) == revision else {}
        if not requests:
            self.forget(key)
            return
        self._revisions[key] = revision
        self._measured[key] = measured = {}
        for request in requests:
            probe = request.subject.probe
            earlier = before.get(probe)
            measured[probe] = earlier or _Measured(request)
            measured[probe].request = request
            if earlier is None:
                self._wake.set()

    def readings(self, key: Key) -> Mapping[Probe, Reading]:
        """The last reading of each probe of a DaemonSet."""
        measured = self._measured.get(key, {})
        return {probe: one.reading for probe, one in measured.items() if one.reading is not None}

    def forget(self, key: Key) -> None:
        """Ends the measurements of a DaemonSet."""
        self._measured.pop(key, None)
        self._revisions.pop(key, None)
        self.meter.forget(key)

    def clear(self) -> None:
        """Ends all measurements."""
        for key in tuple(self._measured):
            self.forget(key)

    async def run(self) -> None:
        """Measures until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for key, probes in self._measured.items():
                    for probe, one in probes.items():
                        if not one.polled:
                            one.polled = True
                            group.create_task(self._poll(key, probe, one))
                await self._wake.wait()

    async def _poll(self, key: Key, probe: Probe, one: _Measured) -> None:
        """Measures one probe until it is no longer followed."""
        while self._measured.get(key, {}).get(probe) is one:
            reading = await self.meter.measure(one.request)
            first = one.reading.first if one.reading is not None else reading.at
            one.reading = replace(reading, first=first)
            self._changed(key)
            await asyncio.sleep(self.meter.interval)


# https://github.com/kubernetes/metrics/blob/master/pkg/apis/metrics/v1beta1/types.go
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", namespaced=True)
SECONDS = 10.0  # for one measurement
LISTS_AT_ONCE = 4
NODES_AT_ONCE = 100  # whose pods are listed in one measurement; the others are next
SHOWN = 3  # pods in the label of a sample


@dataclass(slots=True)
class _Neighbours:
    """The last state of the other pods of one node; the maps omit pods without restarts."""

    touched: float
    unready: tuple[str, ...] = ()
    restarted: Mapping[str, int] = field(default_factory=dict)  # since the touch, by pod
    first: Mapping[str, int] = field(default_factory=dict)  # all restarts before it, by UID


class PodGates:
    """Measures values of the cluster itself. It reads only pods of touched nodes."""

    def __init__(self, cluster: ClusterReader, clock: Callable[[], float]) -> None:
        self._cluster, self._clock = cluster, clock
        self._looks: dict[Key, dict[str, _Neighbours]] = {}

    interval = 15.0  # seconds

    async def measure(self, request: GateRequest) -> Reading:
        """One measurement; without settings for a Prometheus server and webhooks."""
        match request:
            case MemoryRequest():
                return await self.memory(request)
            case NeighboursRequest():
                return await self.neighbours(request)
            case PrometheusRequest() | WebhookRequest():
                reason = "this process has no settings for metrics"
                return Reading(self._clock(), reason=reason, unavailable=True)

    async def memory(self, request: MemoryRequest) -> Reading:
        """The largest share of a memory limit, in per cent, of each pod."""
        now = self._clock()
        if not request.limits:
            return Reading(now, reason="no container of the template has a memory limit")
        labels = f"{names.ROLLOUT}={request.label}"
        which = Selection(request.subject.daemonset.namespace, labels)
        try:
            async with asyncio.timeout(SECONDS):
                listed = await self._cluster.list(POD_METRICS, which)
        except ClusterError as error:
            return Reading(now, reason=f"metrics API: {error}")
        except TimeoutError:
            return Reading(now, reason="metrics API: no response in time")
        shares, nodes = _shares(request, listed.items), frozenset(request.pods.values())
        return Reading(now, nodes, tuple(shares), about=nodes)

    async def neighbours(self, request: NeighboursRequest) -> Reading:
        """The other pods of each touched node that lost readiness, and the restarts of other
        pods.
        """
        now, subject = self._clock(), request.subject
        looks = self._looks.get(subject.daemonset, {})
        kept = {
            node: look for node, look in looks.items() if request.touched.get(node) == look.touched
        }
        order = [*sorted(request.touched.keys() - kept.keys()), *kept]
        room, reason = asyncio.Semaphore(LISTS_AT_ONCE), ""
        try:
            async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
                for node in order[:NODES_AT_ONCE]:
                    group.create_task(self._look(request, node, kept, room))
        except* ClusterError as errors:
            reason = f"pods of a touched node: {errors.exceptions[0]}"
        except* TimeoutError:
            reason = "pods of a touched node: no response in time"
        # The next measurement lists these nodes last.
        self._looks[subject.daemonset] = {
            node: kept[node] for node in (*order[NODES_AT_ONCE:], *order) if node in kept
        }
        samples = tuple(sample for node, look in kept.items() for sample in _samples(node, look))
        return Reading(now, frozenset(kept), samples, reason=reason)

    def forget(self, key: Key) -> None:
        """Drops the state of a DaemonSet without a rollout."""
        self._looks.pop(key, None)

    async def _look(
        self,
        request: NeighboursRequest,
        node: str,
        kept: dict[str, _Neighbours],
        room: asyncio.Semaphore,
    ) -> None:
        which = Selection(fields=f"spec.nodeName={node}", brief=True)
        async with room:
            listed = await self._cluster.list(POD, which)
        touched, before = request.touched[node], kept.get(node)
        first: dict[str, int] = {}
        others = []
        for body in listed.items:
            pod = pods.pod_of(body)
            if pod.owner is not None and pod.owner.uid == request.subject.uid:
                continue
            others.append(pod)
            if before is not None:
                first[pod.uid] = before.first.get(pod.uid, 0)
            else:
                ends = pod_cause.last_ends(pod_cause.statuses(body.get("status") or {}))
                crashed = (pod_cause.crashed_at(ends) or 0.0) >= touched
                first[pod.uid] = pod.restarts - int(crashed and pod.restarts > 0)
        kept[node] = _Neighbours(
            touched,
            tuple(sorted(_name(pod) for pod in others if _got_unready(pod, touched))),
            {_name(pod): restarts for pod in others if (restarts := pod.restarts - first[pod.uid])},
            {uid: count for uid, count in first.items() if count},
        )


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _got_unready(pod: Pod, touched: float) -> bool:
    """Whether a pod that is older than the touch lost its readiness since then."""
    lost = not pod.ready and pod.ready_since is not None and pod.ready_since >= touched
    return lost and pod.created < touched and not (pod.ended or pod.terminating)


def _samples(node: str, look: _Neighbours) -> Iterator[GateSample]:
    unready = ", ".join(look.unready[:SHOWN])
    yield GateSample(len(look.unready), f"{node}: {unready}" if unready else node, "newlyUnready")
    restarted = [name for name, count in look.restarted.items() if count > 0]
    total = sum(count for count in look.restarted.values() if count > 0)
    names_of = ", ".join(sorted(restarted)[:SHOWN])
    yield GateSample(total, f"{node}: {names_of}" if names_of else node, "newRestarts")


def _shares(request: MemoryRequest, items: Iterable[Body]) -> Iterator[GateSample]:
    """The container of each pod with the largest share of its limit."""
    for body in items:
        name, shares = "", list[tuple[float, str]]()
        try:
            name = str(body["metadata"]["name"])
            for container in body["containers"]:
                if limit := request.limits.get(container["name"]):
                    used = quantities.parse(container["usage"]["memory"])
                    shares.append((float(100 * used / limit), container["name"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # an unexpected form: no data
        if shares and name in request.pods:
            (share, container), node = max(shares), request.pods[name]
            yield GateSample(share, f"container {container} on {node}", node=node)
