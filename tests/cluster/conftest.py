"""Real clusters for the program."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gitops_ds.client import config, rest
from gitops_ds.model.cluster import ApplyResult, PatchType, Propagation
from gitops_ds.model.objects import NAMESPACE, Body, Resource
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

    async def create(self, resource: Resource, body: Body) -> Body:
        self.sent["create"] += 1
        return await super().create(resource, body)

    async def replace(self, resource: Resource, body: Body) -> Body:
        self.sent["replace"] += 1
        return await super().replace(resource, body)

    async def apply(
        self,
        resource: Resource,
        body: Body,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> ApplyResult:
        self.sent["dry run" if dry_run else "apply"] += 1
        return await super().apply(resource, body, manager=manager, force=force, dry_run=dry_run)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Body:
        self.sent["patch"] += 1
        return await super().patch(
            resource, namespace, name, patch, type=type, subresource=subresource
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Body:
        self.sent["delete"] += 1
        return await super().delete(resource, namespace, name, uid=uid, propagation=propagation)


Scene = Callable[[Counting, str], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def on_api_server(api_server: controlplane.ControlPlane) -> Play:
    """Plays a scene on an API server without controllers, in its own namespace."""
    return lambda scene: asyncio.run(_play(api_server, scene))


@pytest.fixture
def on_cluster(control_plane: controlplane.ControlPlane) -> Play:
    """Plays a scene on a whole control plane, in its own namespace."""
    return lambda scene: asyncio.run(_play(control_plane, scene))


async def _play(plane: controlplane.ControlPlane, scene: Scene) -> None:
    namespace = f"scene-{next(_numbers)}"
    async with Counting(plane) as cluster:
        await cluster.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        cluster.sent.clear()
        await scene(cluster, namespace)
