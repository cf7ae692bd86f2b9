"""The watches of deployers: the number per repository, and their memory.

python -m benchmarks watches; GITOPS_DS_BENCH_AGENTS is the number of DaemonSets (100). The lists
are parsed again, as from a connection, and equal bodies are interned, as by the connection of the
service.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import orjson

from benchmarks import rollouts
from gitops_ds.core.cluster import EVERYTHING, Listing, Selection, WatchEvent
from gitops_ds.core.objects import DAEMONSET, NODE, Resource
from gitops_ds.deploy.watch_cache import WatchCache
from gitops_ds.kube.client.received_bodies import BodyCache
from gitops_ds.kube.client.supervisor import Supervisor
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time

AGENTS = int(os.environ.get("GITOPS_DS_BENCH_AGENTS", "100"))
NODES = (100, 1_000)
REPOSITORIES = 4


class Wire:
    """A client that parses and interns each body, and counts open watches."""

    def __init__(self, client: simulator.Client) -> None:
        self._client, self._bodies, self.watches = client, BodyCache(), 0
        self.kept: dict[Resource, tuple[Any, ...]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        listing = await self._client.list(resource, which)
        bodies = tuple(
            self._bodies.intern(orjson.loads(orjson.dumps(one))) for one in listing.items
        )
        if resource != NODE:  # the controller keeps these bodies
            self.kept[resource] = bodies
        return Listing(bodies, listing.version)

    async def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        self.watches += 1
        try:
            async for event in self._client.watch(resource, since, which):
                yield event
        finally:
            self.watches -= 1


def main() -> None:
    for nodes in NODES:
        print(f"{AGENTS} DaemonSets on {nodes} nodes:")
        virtual_time.run(_repositories(nodes))


async def _repositories(nodes: int) -> None:
    async with simulator.SimulatedCluster() as cluster:
        cluster.add_nodes(simulator.NodeSpec(f"node-{n:04d}") for n in range(nodes))
        for number in range(AGENTS):
            body = rollouts.daemonset("1")
            body["metadata"]["name"] = f"agent-{number}"
            await cluster.create(DAEMONSET, body)
        wire: Any = Wire(cluster.client())
        caches = list[WatchCache]()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, REPOSITORIES + 1):
            supervisor = Supervisor(lambda _: None, virtual_time.clock())
            cache = WatchCache(wire, f"r{number}", lambda: None, lambda: 0.5, supervisor)
            await cache.live({})
            caches.append(cache)
            await asyncio.sleep(5)
            gc.collect()
            used, _ = tracemalloc.get_traced_memory()
            print(
                f"  {number} repositories: {wire.watches} watches, "
                f"{(used - before) / 2**20:+.2f} MiB for the last one",
                flush=True,
            )
            before = used
        tracemalloc.stop()
        for cache in caches:
            await cache.stop()
