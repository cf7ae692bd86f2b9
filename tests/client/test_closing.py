"""A connection to the API server leaves no open socket behind, however its requests ended."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from gitops_ds.core.cluster import EVERYTHING
from gitops_ds.core.objects import POD
from gitops_ds.kube.client import config, rest
from gitops_ds.kube.client.transport import RequestCounter
from tests import controlplane


def sockets() -> set[str]:
    result = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            result.add(str(file.readlink()))
    return {name for name in result if name.startswith("socket:")}


@pytest.mark.controlplane
def test_a_cancelled_watch_leaves_no_socket(api_server: controlplane.ControlPlane) -> None:
    async def main() -> None:
        before = sockets()
        for _ in range(10):
            counter = RequestCounter()
            access = config.access(str(api_server.kubeconfig), None)
            async with rest.HttpCluster(access, counter=counter) as cluster:
                version = (await cluster.list(POD)).version

                async def follow(cluster: rest.HttpCluster, version: str) -> None:
                    async for _ in cluster.watch(POD, version, EVERYTHING):
                        pass

                watch = asyncio.create_task(follow(cluster, version))
                while counter.answered["GET", "200"] < 2:
                    await asyncio.sleep(0)
                watch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watch
            assert not sockets() - before

    asyncio.run(main())
