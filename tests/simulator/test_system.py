"""Our controller as the DaemonSet controller of a simulated cluster: the whole system in virtual
time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from gitops_ds import simulator
from gitops_ds.controller import controller as controller_controller
from gitops_ds.controller.powers import Powers
from gitops_ds.model.cluster import EventType, PatchType
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, POD
from gitops_ds.simulator import (
    Behaviour,
    NodeSpec,
    PodFault,
    Trouble,
)
from gitops_ds.simulator import (
    faults as simulator_faults,
)
from tests.simulator import stage


@asynccontextmanager
async def controlled(
    cluster: simulator.SimulatedCluster, faults: simulator.Faults = simulator_faults.none
) -> AsyncIterator[simulator.Client]:
    client = cluster.client(faults=faults)
    chance = random.Random(1).random
    controller = controller_controller.Controller(
        client,
        Powers.FULL,
        lambda _: None,
        clock=cluster.server.now,
        chance=chance,
    )
    task = asyncio.create_task(controller.run())
    try:
        yield client
    finally:
        controller.stop()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _agent(image: str) -> dict[str, Any]:
    labels = {"app": "agent"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def _status(cluster: simulator.SimulatedCluster) -> tuple[int, int, int]:
    status = (await cluster.get(DAEMONSET, "default", "agent"))["status"]
    return (
        status["desiredNumberScheduled"],
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
    )


async def _image(cluster: simulator.SimulatedCluster, image: str) -> None:
    containers = [{"name": "c", "image": image}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    await cluster.patch(DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC)


def test_every_node_has_one_pod_also_new_nodes() -> None:
    async def scene(cluster: simulator.SimulatedCluster) -> None:
        async with controlled(cluster):
            await cluster.create(DAEMONSET, _agent("a:1"))
            await asyncio.sleep(60)
            assert await _status(cluster) == (5, 5, 5)
            cluster.add_nodes([NodeSpec("late")])
            cluster.remove_node("node-0")
            await asyncio.sleep(120)
            on = sorted(p["spec"]["nodeName"] for p in (await cluster.list(POD)).items)
            assert on == ["late", "node-1", "node-2", "node-3", "node-4"]

    stage.play(scene, nodes=5)


def test_a_rollout_takes_one_node_at_a_time_and_ends() -> None:
    async def scene(cluster: simulator.SimulatedCluster) -> None:
        async with controlled(cluster):
            await cluster.create(DAEMONSET, _agent("a:1"))
            await asyncio.sleep(60)
            fewest = 5

            async def watch() -> None:
                nonlocal fewest
                pods = {
                    p["metadata"]["name"]: stage.ready(p["status"])
                    for p in (await cluster.list(POD)).items
                }
                async for event in cluster.watch(POD, (await cluster.list(POD)).version):
                    if event.type in (EventType.ADDED, EventType.MODIFIED):
                        gone = "deletionTimestamp" in event.object["metadata"]
                        pods[event.object["metadata"]["name"]] = (
                            stage.ready(event.object["status"]) and not gone
                        )
                    elif event.type is EventType.DELETED:
                        pods.pop(event.object["metadata"]["name"])
                    fewest = min(fewest, sum(pods.values()))

            watching = asyncio.create_task(watch())
            await asyncio.sleep(0)
            await _image(cluster, "a:2")
            await asyncio.sleep(600)
            watching.cancel()
            assert await _status(cluster) == (5, 5, 5)
            assert fewest == 4
            assert {
                p["spec"]["containers"][0]["image"] for p in (await cluster.list(POD)).items
            } == {"a:2"}

    stage.play(scene, nodes=5)


def test_a_bad_image_stops_at_the_first_node_and_the_rollback_reuses_the_revision() -> None:
    async def scene(cluster: simulator.SimulatedCluster) -> None:
        async with controlled(cluster):
            await cluster.create(DAEMONSET, _agent("a:1"))
            await asyncio.sleep(60)
            await _image(cluster, "a:bad")
            await asyncio.sleep(7200)
            assert await _status(cluster) == (5, 1, 4)
            await _image(cluster, "a:1")
            await asyncio.sleep(600)
            assert await _status(cluster) == (5, 5, 5)
            assert sorted(
                r["revision"] for r in (await cluster.list(CONTROLLER_REVISION)).items
            ) == [2, 3]

    stage.play(
        scene, nodes=5, behaviour=Behaviour(faults=(PodFault("*:bad", Trouble.NEVER_PULLED),))
    )


def test_an_api_server_that_fails_now_and_then_changes_nothing_in_the_end() -> None:
    async def scene(cluster: simulator.SimulatedCluster) -> None:
        def faults(request: simulator.SimulatedRequest) -> simulator_faults.RequestFault | None:
            if request.number % 7 == 3:
                return simulator_faults.failure((409, 429, 500, 503)[request.number // 7 % 4])
            return (
                simulator.Silence(5, done=request.number % 2 == 0)
                if request.number % 31 == 5
                else None
            )

        async with controlled(cluster, faults) as client:
            await cluster.create(DAEMONSET, _agent("a:1"))
            for image in ("a:2", "a:3"):
                await asyncio.sleep(1800)
                client.cut_watches()
                cluster.compact()
                await _image(cluster, image)
            await asyncio.sleep(3600)
            assert await _status(cluster) == (5, 5, 5)
            pods = (await cluster.list(POD)).items
            assert sorted(p["spec"]["nodeName"] for p in pods) == [f"node-{i}" for i in range(5)]

    stage.play(scene, nodes=5)


def test_the_deletion_of_a_daemonset_deletes_its_dependents() -> None:
    async def scene(cluster: simulator.SimulatedCluster) -> None:
        async with controlled(cluster):
            await cluster.create(DAEMONSET, _agent("a:1"))
            await asyncio.sleep(60)
            await cluster.delete(DAEMONSET, "default", "agent")
            await asyncio.sleep(60)
            assert not (await cluster.list(POD)).items
            assert not (await cluster.list(CONTROLLER_REVISION)).items

    stage.play(scene, nodes=5)
