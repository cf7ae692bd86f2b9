"""Leader election on a real API server behind proxies that delay each request: a leader exists, and
never two.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import urllib.parse
from collections.abc import AsyncIterator

import pytest

from gitops_ds.core.objects import LEASE
from gitops_ds.kube.client import config, rest
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.fence import Fence
from gitops_ds.kube.client.kubeconfig import KubeconfigEntry
from gitops_ds.kube.client.leader_election import Candidate
from gitops_ds.kube.client.leader_lease import Clocks, Election
from tests import controlplane

pytestmark = [pytest.mark.slow, pytest.mark.controlplane, pytest.mark.system]
RELEASED = {"holderIdentity": "", "leaseDurationSeconds": 1}


@contextlib.asynccontextmanager
async def delayed(
    plane: controlplane.ControlPlane, latency: float
) -> AsyncIterator[rest.HttpCluster]:
    """The API server as it is seen through a proxy that keeps what is sent to it for so many
    seconds.
    """
    entry = config.access(str(plane.kubeconfig), None)
    server = urllib.parse.urlsplit(entry.url)
    tasks = set[asyncio.Task[None]]()

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
    ) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                await asyncio.sleep(seconds)
                writer.write(data)
                await writer.drain()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(server.hostname, server.port)
        for task in (pump(reader, inner[1], latency), pump(inner[0], writer, 0.0)):
            tasks.add(asyncio.create_task(task))

    proxy = await asyncio.start_server(relay, "127.0.0.1", 0)
    here = KubeconfigEntry(
        f"{server.scheme}://127.0.0.1:{proxy.sockets[0].getsockname()[1]}",
        await entry.authorization(refuse=None),
    )
    try:
        async with rest.HttpCluster(
            ClientConfig("a test", entry.tls, here, lambda: here)
        ) as cluster:
            await cluster.version()  # what the handshake of TLS takes is not a latency of a request
            yield cluster
    finally:
        proxy.close()
        for task in tasks:
            task.cancel()


class Replica:
    """One candidate with connections of its own, and the fence around what it writes."""

    def __init__(self, cluster: rest.HttpCluster, lease: str, name: str) -> None:
        self.fence = Fence(time.monotonic)
        clocks = Clocks(time.monotonic, time.time, random.random)
        self.election = Election(
            cluster, Candidate("default", lease, name), self.fence, lambda _: None, clocks
        )
        self.task = asyncio.create_task(self.election.run(lambda _: None))


async def play(plane: controlplane.ControlPlane, latency: float) -> None:
    lease = f"slow-{latency:.0f}"
    body = {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"namespace": "default", "name": lease},
    }
    async with (
        delayed(plane, latency) as one,
        delayed(plane, latency) as another,
        delayed(plane, 0.0) as people,
    ):
        await people.create(LEASE, {**body, "spec": RELEASED})
        replicas = [Replica(one, lease, "a"), Replica(another, lease, "b")]

        async def until_one_leads(which: list[Replica]) -> None:
            async with asyncio.timeout(120):
                while not any(replica.fence.left > 0 for replica in which):
                    assert sum(replica.fence.left > 0 for replica in replicas) <= 1
                    await asyncio.sleep(0.02)

        await until_one_leads(replicas)
        for _ in range(1000):
            assert sum(replica.fence.left > 0 for replica in replicas) <= 1
            await asyncio.sleep(0.02)
        await until_one_leads(replicas)
        leader, other = sorted(replicas, key=lambda replica: -replica.fence.left)
        leader.task.cancel()
        await until_one_leads([other])
        other.task.cancel()
        await asyncio.gather(leader.task, other.task, return_exceptions=True)


def test_at_any_latency_of_a_real_api_server_one_leads_and_is_followed(
    api_server: controlplane.ControlPlane,
) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(*(play(api_server, latency) for latency in (1.0, 2.0, 3.0, 5.0)))

    asyncio.run(all_at_once())
