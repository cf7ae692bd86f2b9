"""Upstream's integration tests (test/integration/daemonset, and what its unit tests need an API
server for), in virtual time.

Elsewhere: LaunchWithHashCollision, OneNodeDaemonLaunchesPod and SimpleDaemonSetLaunchesPods in
test_controller_loop.py, DaemonSetReconcileRobustnessMatrix in test_scenarios.py, NotReadyNode in
tests/daemonset/test_upstream_controller.py.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from typing import Any

import pytest

from gitops_ds import simulator
from gitops_ds.apimachinery import pods
from gitops_ds.model import names
from gitops_ds.model.cluster import PatchType, Propagation
from gitops_ds.model.live import Taint
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body
from gitops_ds.simulator import faults
from gitops_ds.simulator.faults import RequestFault, SimulatedRequest
from tests.daemonset import world
from tests.simulator.setup import BAD_IMAGE, Setup, daemonset, each, named, set_up

both_strategies = pytest.mark.parametrize(
    "strategy", [world.rolling(), {"type": "OnDelete"}], ids=["rolling", "on delete"]
)


async def only_pod(there: Setup) -> Body:
    (body,) = (await there.people.list(POD)).items
    return body


async def patch(
    there: Setup, resource: Any, name: str, body: dict[str, Any], subresource: str = ""
) -> None:
    namespace = "" if resource == NODE else "default"
    await there.people.patch(
        resource, namespace, name, body, type=PatchType.MERGE, subresource=subresource
    )


@both_strategies
@pytest.mark.parametrize(
    ("phase", "finalizers"),
    [
        ("Failed", []),
        ("Succeeded", []),
        ("Succeeded", ["example.com/held"]),
        ("Failed", ["example.com/held"]),
    ],
)
async def test_a_pod_that_ended_is_replaced_even_while_a_finalizer_holds_it(
    phase: str, finalizers: list[str], strategy: dict[str, Any]
) -> None:
    async with set_up(1, daemonset(updateStrategy=strategy)) as there:
        there.begin()
        await asyncio.sleep(10)
        name = (await only_pod(there))["metadata"]["name"]
        await patch(there, POD, name, {"metadata": {"finalizers": finalizers}})
        await patch(there, POD, name, {"status": {"phase": phase}}, "status")
        await asyncio.sleep(10)
        found = {body["metadata"]["name"]: body for body in (await there.people.list(POD)).items}
        assert (name in found) == bool(finalizers)
        (made,) = (body for held, body in found.items() if held != name)
        assert made["status"]["phase"] == "Running"
        assert (await there.status())["numberAvailable"] == 1


async def test_terms_of_required_affinity_are_alternatives() -> None:
    body = daemonset()
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["test"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    async with set_up(
        [*named([0, 1, 2, 3]), *named([4, 5], labels={"zone": "test"})], body
    ) as there:
        there.begin()
        await asyncio.sleep(10)
        assert sorted(node for node, _ in await there.pods()) == ["node-1", "node-4", "node-5"]


async def test_a_node_without_capacity_gets_a_pending_pod_and_the_status_counts_it() -> None:
    body = daemonset()
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"memory": "75M", "cpu": "75m"}
    }
    small = simulator.NodeSpec("node-0", room={"memory": "70M", "cpu": "100m", "pods": "10"})
    async with set_up([small, *named([1])], body) as there:
        there.begin()
        await asyncio.sleep(10)
        status = await there.status()
        assert [status[f"{field}"] for field in ("currentNumberScheduled", "numberReady")] == [
            2,
            1,
        ]
        waiting = next(
            body
            for body in (await there.people.list(POD)).items
            if not body["spec"].get("nodeName")
        )
        assert pods.pod_of(waiting).trouble == "Unschedulable"


async def test_after_a_twin_revision_appears_pods_carry_its_hash_and_nothing_restarts() -> None:
    async with set_up(1) as there:
        there.begin()
        await asyncio.sleep(10)
        before = await only_pod(there)
        (first,) = (await there.people.list(CONTROLLER_REVISION)).items
        twin = copy.deepcopy(dict(first))
        twin["metadata"] = {
            **twin["metadata"],
            "name": "twin",
            "labels": {"app": "agent", names.REVISION_HASH: "twin"},
        }
        await there.people.create(CONTROLLER_REVISION, {**twin, "revision": 2})
        await asyncio.sleep(10)
        assert len((await there.people.list(CONTROLLER_REVISION)).items) == 2, (
            "the creation of an own revision causes no reconciliation"
        )
        there.cluster.add_nodes(named([1]))
        await asyncio.sleep(10)
        (kept,) = (await there.people.list(CONTROLLER_REVISION)).items
        assert kept["metadata"]["name"] == "twin"
        found = {
            body["metadata"]["uid"]: pods.pod_of(body).hash
            for body in (await there.people.list(POD)).items
        }
        assert set(found.values()) == {"twin"}
        assert before["metadata"]["uid"] in found
        assert await there.pods() == each(2)


async def test_a_tainted_node_gets_its_pod_when_the_taint_is_gone() -> None:
    async with set_up([*named([0]), *named([1], taints=(Taint("key", "NoSchedule"),))]) as there:
        there.begin()
        await asyncio.sleep(10)
        assert await there.pods() == each(1)
        await patch(there, NODE, "node-1", {"spec": {"taints": None}})
        await asyncio.sleep(10)
        assert await there.pods() == each(2)


async def test_cordoned_nodes_and_those_without_network_get_pods() -> None:
    body = daemonset()
    body["spec"]["template"]["spec"]["hostNetwork"] = True
    lacking = Taint("node.kubernetes.io/network-unavailable", "NoSchedule")
    async with set_up([*named([0]), *named([1], taints=(lacking,))], body) as there:
        await patch(there, NODE, "node-0", {"spec": {"unschedulable": True}})
        there.begin()
        await asyncio.sleep(10)
        assert await there.pods() == each(2)


@both_strategies
async def test_when_only_two_of_five_pods_are_admitted_the_status_counts_two(
    strategy: dict[str, Any],
) -> None:
    made = 0

    def admission(request: SimulatedRequest) -> RequestFault | None:
        nonlocal made
        if request.verb == "create" and request.resource == POD:
            made += 1
            return faults.failure(403, "two pods are enough") if made > 2 else None
        return None

    async with set_up(5, daemonset(updateStrategy=strategy)) as there:
        there.cluster.faults = admission
        there.begin()
        await asyncio.sleep(30)
        status = await there.status()
        assert [
            status[field]
            for field in ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
        ] == [5, 2, 2]


async def test_ten_of_a_hundred_pods_are_admitted_and_the_status_counts_ten() -> None:
    def admission(request: SimulatedRequest) -> RequestFault | None:
        tried[request.verb, request.resource] += 1
        refused = (
            request.verb == "create" and request.resource == POD and tried[request.verb, POD] > 10
        )
        return faults.failure(403, "ten pods are enough") if refused else None

    tried: Counter[tuple[str, Any]] = Counter()
    async with set_up(100) as there:
        there.cluster.faults = admission
        there.begin()
        await asyncio.sleep(0.004)
        assert tried["create", POD] <= 1 + 2 + 4 + 8
        await asyncio.sleep(20)
        status = await there.status()
        fields = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled")
        assert [status[field] for field in fields] == [100, 10, 10]


async def test_other_tolerations_move_the_pods_to_other_nodes_without_a_gap() -> None:
    def tolerating(*keys: str) -> dict[str, Any]:
        tolerations = [{"key": key, "operator": "Exists"} for key in keys]
        return {"spec": {"template": {"spec": {"tolerations": tolerations}}}}

    async def count(there: Setup) -> int:
        return sum(
            "deletionTimestamp" not in body["metadata"]
            for body in (await there.people.list(POD)).items
        )

    zones = [
        named([2 * i, 2 * i + 1], taints=(Taint(zone, "NoSchedule"),))
        for i, zone in enumerate(("y", "z", "common"))
    ]
    body = daemonset(updateStrategy=world.rolling(0, 1))
    body["spec"]["template"]["spec"]["tolerations"] = [
        {"key": key, "operator": "Exists"} for key in ("y", "common")
    ]
    async with set_up(
        [spec for zone in zones for spec in zone], body, simulator.Behaviour(start=30)
    ) as there:
        there.begin()
        await asyncio.sleep(60)
        assert await count(there) == 4
        await patch(there, DAEMONSET, "agent", tolerating("z", "common"))
        await asyncio.sleep(20)
        assert await count(there) == 7
        await asyncio.sleep(300)
        assert sorted(node for node, _ in await there.pods()) == [
            "node-2",
            "node-3",
            "node-4",
            "node-5",
        ]
        await patch(there, DAEMONSET, "agent", tolerating("y", "z", "common"))
        await asyncio.sleep(300)
        assert await count(there) == 6
        await patch(there, DAEMONSET, "agent", tolerating())
        await asyncio.sleep(300)
        assert await count(there) == 0


async def test_a_recreated_daemonset_of_the_same_name_starts_without_history() -> None:
    async with set_up(3) as there:
        there.begin()
        await asyncio.sleep(10)
        await there.people.delete(DAEMONSET, "default", "agent")
        await there.people.create(DAEMONSET, daemonset("agent:2"))
        await asyncio.sleep(60)
        assert await there.pods() == each(3, "agent:2")
        (revision,) = (await there.people.list(CONTROLLER_REVISION)).items
        assert revision["revision"] == 1


async def test_a_daemonset_in_deletion_adopts_nothing_before_its_watch_shows_the_deletion() -> None:
    async with set_up(1, None, BAD_IMAGE) as there:
        there.begin()
        await asyncio.sleep(10)
        there.cluster.lag = lambda resource: 60.0 if resource == DAEMONSET else 0.0
        await patch(there, DAEMONSET, "agent", {"metadata": {"finalizers": ["example.com/held"]}})
        await there.people.delete(DAEMONSET, "default", "agent", propagation=Propagation.ORPHAN)
        await asyncio.sleep(30)
        assert pods.pod_of(await only_pod(there)).owner is None
        await asyncio.sleep(120)
        assert pods.pod_of(await only_pod(there)).owner is None
        assert await there.pods() == each(1)
