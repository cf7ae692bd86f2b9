"""`scheduling: direct`: pods are bound by the controller itself, where they fit, on a cluster that
has no scheduler.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gitops_ds.core.decision import Decision
from gitops_ds.core.events.base import Decided
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import POD
from gitops_ds.kube.apimachinery import pods
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.daemonset.world import rolling
from tests.simulator import setup
from tests.simulator.setup import Setup, daemonset


def asking(cpu: str, port: int = 0, **spec: Any) -> dict[str, Any]:
    body = daemonset(**spec)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": cpu}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    return body


def other(name: str, node: str, cpu: str) -> dict[str, Any]:
    spec = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": cpu}}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def last(there: Setup) -> Decision:
    return [event.decision for event in there.records if isinstance(event, Decided)][-1]


async def running(there: Setup) -> dict[str, str]:
    items = (await there.people.list(POD)).items
    return {
        pods.pod_of(body).node: body["spec"]["containers"][0]["image"]
        for body in items
        if body["metadata"]["name"] != "other"
    }


async def test_pods_carry_their_nodes_name_and_keep_the_templates_affinity() -> None:
    async with setup.set_up(3) as there:
        there.begin(direct=True)
        await asyncio.sleep(10)
        bodies = (await there.people.list(POD)).items
        assert {body["spec"]["nodeName"] for body in bodies} == {"node-0", "node-1", "node-2"}
        assert all("affinity" not in body["spec"] for body in bodies)
        await there.edit("agent:2")
        await asyncio.sleep(60)
        assert await there.pods() == setup.each(3, "agent:2")


async def test_a_full_node_gets_its_pod_when_capacity_is_free_and_an_event_has_the_cause() -> None:
    nodes = [simulator.NodeSpec(f"node-{i}", room={"cpu": "1", "pods": "9"}) for i in range(2)]
    async with setup.set_up(nodes, asking("500m")) as there:
        await there.people.create(POD, other("other", "node-1", "600m"))
        there.begin(direct=True)
        await asyncio.sleep(10)
        assert await running(there) == {"node-0": "agent:1"}
        assert last(there).unplaced == {"node-1": "Insufficient cpu"}
        await there.people.delete(POD, "default", "other")
        await asyncio.sleep(10)
        assert await running(there) == {"node-0": "agent:1", "node-1": "agent:1"}
        assert not last(there).unplaced


def test_a_replacement_in_place_waits_for_a_host_port_and_with_surge_reports_no_room() -> None:
    async def scene() -> None:
        async with setup.set_up(2, asking("100m", port=9100)) as there:
            there.begin(direct=True)
            await there.edit("agent:2")
            await asyncio.sleep(60)
            assert await there.pods() == setup.each(2, "agent:2")
        async with setup.set_up(
            2, asking("100m", port=9100, updateStrategy=rolling(0, 1))
        ) as there:
            there.begin(direct=True)
            await asyncio.sleep(10)
            await there.edit("agent:2")
            await asyncio.sleep(60)
            assert await there.pods() == setup.each(2, "agent:1")
            assert set(last(there).unplaced) == {"node-0", "node-1"}

    setup.play(scene)


async def test_a_pod_that_fits_nowhere_is_the_clusters_doing_in_the_health_too() -> None:
    async with setup.set_up(1, asking("500")) as there:
        controller = there.begin(direct=True)
        await controller.observer.synced.wait()
        tracker = StatusTracker(controller.observer, dict, virtual_time.clock())
        there.subscribers.append(tracker.handle)
        watching = asyncio.create_task(tracker.run())
        await asyncio.sleep(30)
        await there.edit("agent:2")
        await asyncio.sleep(30)
        [agent] = tracker.agents()
        watching.cancel()
        assert agent.health.state is HealthState.DEGRADED
        assert "Insufficient cpu" in agent.health.message
