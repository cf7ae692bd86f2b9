"""Real clusters for the program."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable

import orjson
import pytest

from gitops_ds.core.objects import NAMESPACE
from gitops_ds.kube.client import config, rest
from gitops_ds.kube.client.received_bodies import Decode
from gitops_ds.kube.client.transport import Request
from tests import controlplane

_numbers = itertools.count()


class Counting(rest.HttpCluster):
    """A connection that counts writes, without dry runs."""

    def __init__(self, plane: controlplane.ControlPlane) -> None:
        super().__init__(config.access(str(plane.kubeconfig), None))
        self.sent: Counter[str] = Counter()

    @property
    def writes(self) -> int:
        return self.sent.total() - self.sent["dry run"]

    async def _answer(self, request: Request, decode: Decode = orjson.loads):
        if request.method != "GET":
            self.sent["dry run" if "dryRun" in request.query else request.method] += 1
        return await super()._answer(request, decode)


Scene = Callable[[Counting, str], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def on_api_server(api_server: controlplane.ControlPlane) -> Play:
    """Plays a scene on an API server without controllers, in its own namespace."""
    return lambda scene: asyncio.run(_play(api_server, scene))


async def _play(plane: controlplane.ControlPlane, scene: Scene) -> None:
    namespace = f"scene-{next(_numbers)}"
    async with Counting(plane) as cluster:
        await cluster.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        cluster.sent.clear()
        await scene(cluster, namespace)
