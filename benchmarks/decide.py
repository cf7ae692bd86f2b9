"""The controller core without an API server: a decision in the middle of a rollout, the memory of
the cache, a whole rollout in virtual time.

python -m benchmarks decide; GITOPS_DS_BENCH_SIMULATED is the number of nodes (5000).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import orjson

from benchmarks import figures, rollouts
from gitops_ds.controller.controller import Controller
from gitops_ds.core.cluster import Listing
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import DAEMONSET, NODE, Key, Resource
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.cache import WATCHED, Cache
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time

NODES = int(os.environ.get("GITOPS_DS_BENCH_SIMULATED", "5000"))
AGENT = Key(DAEMONSET.group, DAEMONSET.kind, "default", "agent")
COPIES = 10

Lists = Mapping[Resource, Listing]


def main() -> None:
    lists: Lists = {}
    for nodes in (NODES // 5, NODES // 2, NODES):
        lists = virtual_time.run(half_way(nodes))
        seconds = decision(lists)
        print(
            f"a decision on {nodes} nodes, half way: {1e3 * seconds:.1f} ms, "
            f"{1e6 * seconds / nodes:.1f} us a node",
            flush=True,
        )
    print(f"{COPIES} DaemonSets on {NODES} nodes in the cache: {held(lists):.0f} MiB", flush=True)
    virtual_time.run(rollout(NODES))


def decision(lists: Lists) -> float:
    """Seconds of CPU of one turn: the observation and the decision."""
    cache = filled(lists)
    times = []
    for _ in range(15):
        began = time.process_time()
        turn(cache)
        times.append(time.process_time() - began)
    return median(times)


def filled(lists: Lists) -> Cache:
    """The controller's cache with these objects."""
    cache = Cache()
    for resource, listing in lists.items():
        cache.replace(resource, listing.items, listing.version)
    return cache


def turn(cache: Cache) -> None:
    """The observation and the decision."""
    seen = cache.observe(AGENT, virtual_time.EPOCH + 3600)
    assert seen is not None
    decide.decide(seen)


def held(lists: Lists) -> float:
    """The memory of the cache in MiB for that many DaemonSets; each body is parsed again."""
    wire = {
        resource: [orjson.dumps(body) for body in listing.items]
        for resource, listing in lists.items()
    }
    cache = Cache()
    tracemalloc.start()
    for resource in WATCHED:
        copies = 1 if resource == NODE else COPIES
        bodies = (
            _copy(orjson.loads(text), number) for text in wire[resource] for number in range(copies)
        )
        cache.replace(resource, bodies, lists[resource].version)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(cache.keys) == COPIES
    return used / 2**20


def _copy(body: dict[str, Any], number: int) -> dict[str, Any]:
    """The same object of another DaemonSet."""
    metadata = body["metadata"]
    if "namespace" in metadata:
        metadata["namespace"] = f"space-{number}"
        metadata["uid"] += str(number)
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] += str(number)
    return body


async def half_way(nodes: int) -> Lists:
    """All objects of a cluster in which half of the nodes run the new template."""
    async with controlled(nodes) as cluster:
        await change(cluster, "1", nodes)
        await change(cluster, "2", nodes // 2)
        return {resource: await cluster.list(resource) for resource in WATCHED}


async def rollout(nodes: int) -> None:
    async with controlled(nodes) as cluster:
        for image, what in (("1", "create"), ("2", "update")):
            began = time.perf_counter()
            await change(cluster, image, nodes)
            figures.show(f"{what} on {nodes} simulated nodes", time.perf_counter() - began, None)


@asynccontextmanager
async def controlled(nodes: int) -> AsyncIterator[simulator.SimulatedCluster]:
    """A simulated cluster with our controller."""
    async with simulator.SimulatedCluster() as cluster, asyncio.TaskGroup() as group:
        cluster.add_nodes(simulator.NodeSpec(f"node-{number:04d}") for number in range(nodes))
        clock = virtual_time.clock()
        controller = Controller(
            cluster.client(),
            Powers.FULL,
            lambda _: None,
            clock=clock,
            chance=random.Random(1).random,
        )
        group.create_task(controller.run())
        yield cluster
        controller.stop()


async def change(cluster: simulator.SimulatedCluster, image: str, enough: int) -> None:
    """Creates or changes the DaemonSet, and waits until that many nodes run it."""
    body = rollouts.daemonset(image)
    if image == "1":
        await cluster.create(DAEMONSET, body)
    else:
        await cluster.patch(
            DAEMONSET, "default", "agent", {"spec": {"template": body["spec"]["template"]}}
        )
    while True:
        await asyncio.sleep(1)
        live_object = await cluster.get(DAEMONSET, "default", "agent")
        status = live_object.get("status") or {}
        current = status.get("observedGeneration") == live_object["metadata"]["generation"]
        if current and min(status["updatedNumberScheduled"], status["numberAvailable"]) >= enough:
            return
