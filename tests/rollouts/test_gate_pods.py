"""What the cluster itself shows to gates: other pods of touched nodes, and the memory of new pods;
the whole rollout in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import Listing, Selection
from gitops_ds.core.errors import Forbidden
from gitops_ds.core.events.rollouts import RolloutHalted
from gitops_ds.core.objects import DAEMONSET, POD, CommitId, Key, Resource
from gitops_ds.core.rollouts.rollout_gates import (
    MemoryRequest,
    NeighboursRequest,
    Probe,
    ProbeKind,
    Reading,
    Subject,
)
from gitops_ds.kube.apimachinery import pods, timestamps
from gitops_ds.rollouts.inputs import gate_measurement
from gitops_ds.rollouts.inputs.gate_measurement import POD_METRICS, PodGates
from tests.deploy.rollout_scene import NODES, Scene, play

NEIGHBOURS = """\
stages:
  - {name: canary, nodes: {count: 2}, soak: 2m}
  - {name: rest, soak: 30s}
limits: {atRisk: {cluster: 30%}}
gates: {nodes: {neighbours: {newlyUnready: 0, newRestarts: 1}}}
"""
MEMORY = NEIGHBOURS.replace(
    "nodes: {neighbours: {newlyUnready: 0, newRestarts: 1}}", "pods: {GATE}"
)
KEY = Key(DAEMONSET.group, DAEMONSET.kind, "default", "agent")


class Pods:
    """A cluster of fixed pods: by node, and in the metrics API."""

    def __init__(self) -> None:
        self.on: dict[str, list[dict[str, Any]]] = {}
        self.memory: list[dict[str, Any]] | None = []
        self.asked: list[Selection] = []

    async def list(self, resource: Resource, which: Selection) -> Listing:
        self.asked.append(which)
        if resource == POD_METRICS:
            if self.memory is None:
                raise Forbidden("pods.metrics.k8s.io is forbidden")
            return Listing(tuple(self.memory), "1")
        node = which.fields.removeprefix("spec.nodeName=")
        return Listing(tuple(self.on.get(node, ())), "1")


def pod(name: str, ready: bool, since: float, **more: Any) -> dict[str, Any]:
    """A pod that was created at 10 s; `restarts` with the last end at `ended`."""
    status: dict[str, Any] = {
        "phase": more.get("phase", "Running"),
        "conditions": [
            {
                "type": "Ready",
                "status": str(ready),
                "lastTransitionTime": timestamps.text(since),
            }
        ],
    }
    if restarts := more.get("restarts", 0):
        end = {"exitCode": 1, "finishedAt": timestamps.text(more["ended"])}
        status["containerStatuses"] = [{"restartCount": restarts, "lastState": {"terminated": end}}]
    metadata: dict[str, Any] = {
        "namespace": "web",
        "name": name,
        "uid": name,
        "creationTimestamp": timestamps.text(more.get("created", 10.0)),
    }
    if more.get("own"):
        owner = {"kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": True}
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"nodeName": "a"}, "status": status}


def subject(kind: ProbeKind, *nodes: str) -> Subject:
    return Subject(KEY, "ds", CommitId("c"), Probe("canary", "nodes", kind), nodes)


def look(cluster: Pods, gates: PodGates | None = None, **touched: float) -> Reading:
    gates = gates or PodGates(cluster, lambda: 1000.0)  # type: ignore[arg-type]
    request = NeighboursRequest(subject(ProbeKind.NEIGHBOURS, *touched), touched)
    return asyncio.run(gates.neighbours(request))


def numbers(reading: Reading) -> dict[str, tuple[float, str]]:
    return {sample.bound: (sample.value, sample.labels) for sample in reading.samples}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (pod("x", True, 50.0), 0),
        (pod("x", False, 150.0), 1),
        (pod("x", False, 50.0), 0),
        (pod("x", False, 150.0, created=120.0), 0),
        (pod("x", False, 150.0, phase="Succeeded"), 0),
        (pod("x", False, 150.0, own=True), 0),
    ],
    ids=["ready", "lost it since", "lost it before", "younger", "ended", "our own"],
)
def test_only_older_pods_of_others_that_lost_their_readiness_since_the_touch_count(
    body: dict[str, Any], expected: int
) -> None:
    cluster = Pods()
    cluster.on["a"] = [body]
    assert numbers(look(cluster, a=100.0))["newlyUnready"][0] == expected
    assert [one.fields for one in cluster.asked] == ["spec.nodeName=a"]


def test_restarts_count_from_the_touch_on_and_further_ones_by_their_number() -> None:
    cluster = Pods()
    gates = PodGates(cluster, lambda: 1000.0)  # type: ignore[arg-type]
    for restarts, ended, expected in ((5, 50.0, 0), (5, 50.0, 0), (7, 150.0, 2), (9, 160.0, 4)):
        cluster.on["a"] = [pod("x", True, 50.0, restarts=restarts, ended=ended)]
        assert numbers(look(cluster, gates, a=100.0))["newRestarts"][0] == expected
    # A new process knows of one restart since the touch only.
    reading = look(cluster, a=100.0)
    assert numbers(reading)["newRestarts"] == (1, "a: web/x")


def test_each_of_many_nodes_is_listed_in_turn() -> None:
    cluster = Pods()
    gates = PodGates(cluster, lambda: 1000.0)  # type: ignore[arg-type]
    number = 2 * gate_measurement.NODES_AT_ONCE + 50
    touched = {f"node-{index:03}": 100.0 for index in range(number)}
    reading = look(cluster, gates, **touched)
    assert len(cluster.asked) == len(reading.nodes) == gate_measurement.NODES_AT_ONCE
    for _ in range(4):
        reading = look(cluster, gates, **touched)
    assert len(reading.nodes) == number
    fields = [one.fields for one in cluster.asked]
    assert {fields.count(field) for field in set(fields)} == {2}
    assert len(look(cluster, gates, a=100.0).nodes) == 1


def measure_memory(cluster: Pods, **limits: int) -> Reading:
    gates = PodGates(cluster, lambda: 1000.0)  # type: ignore[arg-type]
    nodes = {"agent-a": "a", "agent-b": "b"}
    request = MemoryRequest(subject(ProbeKind.MEMORY, "a", "b"), "hash", nodes, limits)
    return asyncio.run(gates.memory(request))


def lacking(reading: Reading) -> frozenset[str]:
    return reading.about - {sample.node for sample in reading.samples}


def metrics(name: str, **usage: str) -> dict[str, Any]:
    containers = [{"name": one, "usage": {"memory": text}} for one, text in usage.items()]
    return {"metadata": {"name": name}, "containers": containers}


def test_the_largest_share_of_a_limit_counts_and_a_missing_pod_counts_as_no_data() -> None:
    cluster = Pods()
    cluster.memory = [
        metrics("agent-a", main="50Mi", side="9Mi", free="10Gi"),
        metrics("stranger", main="1Gi"),
    ]
    reading = measure_memory(cluster, main=100 << 20, side=10 << 20)
    assert [(sample.value, sample.labels) for sample in reading.samples] == [
        (90.0, "container side on a")
    ]
    assert lacking(reading) == {"b"}
    assert cluster.asked[0].labels == f"{names.ROLLOUT}=hash"
    cluster.memory += [metrics("agent-b", main="many"), {}, {"metadata": 3}]
    cluster.memory += [{"metadata": {"name": "agent-b"}, "containers": [3]}]
    assert lacking(measure_memory(cluster, main=100 << 20)) == {"b"}
    cluster.memory += [metrics("agent-b", main="1Mi")]
    assert not lacking(measure_memory(cluster, main=100 << 20))


def test_without_limits_rights_or_a_metrics_api_the_result_counts_as_no_data() -> None:
    cluster = Pods()
    assert "no container" in measure_memory(cluster).reason
    cluster.memory = None
    assert "forbidden" in measure_memory(cluster, main=1).reason


def played(policy: str, script: Callable[[Scene], Awaitable[None]]) -> None:
    play(script, policy=policy)


def on(scene: Scene, tag: str) -> set[str]:
    """The nodes whose pod of the agent has that image; `Scene.on` counts other pods as well."""
    all_pods = map(pods.pod_of, scene.cluster.server.store.all(POD))
    images = {
        str(body["metadata"]["name"]): str(body["spec"]["containers"][0]["image"])
        for body in scene.cluster.server.store.all(POD)
    }
    return {
        pod.node
        for pod in all_pods
        if not pod.terminating and images[pod.name].endswith(f"/agent:{tag}")
    }


def neighbour(node: str) -> dict[str, Any]:
    container = {"name": "web", "image": "registry.example.com/web:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": f"web-{node}"},
        "spec": {"nodeName": node, "containers": [container]},
    }


async def neighbours(scene: Scene) -> None:
    for number in range(NODES):
        await scene.cluster.create(POD, neighbour(f"node-{number}"))
    await asyncio.sleep(60)


def test_a_neighbour_that_gets_unready_after_the_touch_halts_the_rollout() -> None:
    async def script(scene: Scene) -> None:
        await neighbours(scene)
        scene.push("2")
        await scene.until(lambda: bool(on(scene, "2")))
        (node, *_) = sorted(on(scene, "2"))
        await asyncio.sleep(30)
        status = {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "lastTransitionTime": timestamps.text(scene.cluster.server.now()),
                }
            ]
        }
        await scene.cluster.patch(
            POD, "default", f"web-{node}", {"status": status}, subresource="status"
        )
        await scene.until(
            lambda: any(isinstance(event, RolloutHalted) for event in scene.events), 5
        )
        halt = scene.decision.halt
        assert halt is not None
        assert halt.gate is not None
        assert halt.gate.value == f"1 ({node}: default/web-{node})"
        assert halt.gate.bound == "at most 0 newlyUnready"
        assert len(on(scene, "2")) <= 2

    played(NEIGHBOURS, script)


def test_a_gate_that_no_settings_can_measure_holds() -> None:
    async def script(scene: Scene) -> None:
        scene.push("2")
        await asyncio.sleep(600)
        assert len(on(scene, "2")) <= 2
        hold = scene.decision.hold
        assert hold is not None
        assert "no settings for metrics" in hold.reason
        assert hold.until is not None

    played(MEMORY.replace("GATE", "prometheus: up, below: 2, noData: pass"), script)


def test_a_kill_in_the_middle_of_a_gate_loses_nothing() -> None:
    async def script(scene: Scene) -> None:
        await neighbours(scene)
        scene.push("2")
        for _ in range(8):
            await asyncio.sleep(20)
            scene.kill()
            scene.start()
        await scene.until(lambda: len(on(scene, "2")) == NODES)

    played(NEIGHBOURS, script)
