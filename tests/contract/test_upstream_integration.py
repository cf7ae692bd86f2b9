"""Upstream's integration tests once more, those whose point is what a real API server does; the
others are in tests/simulator.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gitops_ds.controller.controller import Controller
from gitops_ds.core import names
from gitops_ds.core.cluster import Cluster, PatchType, Selection
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    NAMESPACE,
    NODE,
    POD,
    Body,
    Resource,
)
from gitops_ds.kube.apimachinery import daemonsets, pods, revisions
from gitops_ds.kube.client import config, rest
from tests import controlplane
from tests.contract.scenes import Stage, eventually

QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas", namespaced=True)

_numbers = itertools.count()

pytestmark = pytest.mark.controlplane

Scene = Callable[[Stage], Awaitable[None]]


def play(plane: controlplane.ControlPlane, scene: Scene) -> None:
    """The scene in a namespace of its own."""

    async def run() -> None:
        async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
            stage = Stage(cluster, f"integration-{next(_numbers)}")
            await cluster.create(
                NAMESPACE,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}},
            )
            try:
                await scene(stage)
            finally:
                await cluster.delete(NAMESPACE, "", stage.namespace)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def controller(cluster: Cluster) -> AsyncIterator[None]:
    """Our controller with full powers."""
    made = Controller(
        cluster, Powers.FULL, lambda record: None, clock=time.time, chance=random.random
    )
    running = asyncio.create_task(made.run())
    try:
        yield
    finally:
        made.stop()
        await running


async def own(stage: Stage, resource: Resource) -> list[Body]:
    return list((await stage.cluster.list(resource, Selection(stage.namespace))).items)


async def status_is(stage: Stage, **expected: int) -> None:
    """Waits for these counts in the status."""

    async def holds() -> bool:
        status = (await stage.cluster.get(DAEMONSET, stage.namespace, "agent")).get("status") or {}
        return all(status.get(field) == value for field, value in expected.items())

    await eventually(holds)


async def merge(
    stage: Stage, resource: Resource, name: str, body: Any, subresource: str = ""
) -> None:
    namespace = stage.namespace if resource.namespaced else ""
    await stage.cluster.patch(
        resource, namespace, name, body, type=PatchType.MERGE, subresource=subresource
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_that_a_finalizer_holds_is_replaced(
    control_plane_without_daemonsets: controlplane.ControlPlane, phase: str
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.cluster.create(DAEMONSET, stage.daemonset())
        async with controller(stage.cluster):
            await status_is(stage, numberAvailable=3)
            held = (await own(stage, POD))[0]["metadata"]
            await merge(
                stage, POD, held["name"], {"metadata": {"finalizers": ["example.com/held"]}}
            )
            await merge(stage, POD, held["name"], {"status": {"phase": phase}}, "status")

            async def replaced() -> bool:
                there = [pods.pod_of(body) for body in await own(stage, POD)]
                serving = [
                    pod for pod in there if pod.ready and not pod.terminating and not pod.ended
                ]
                return len(serving) == 3 and any(pod.uid == held["uid"] for pod in there)

            await eventually(replaced)
            await merge(stage, POD, held["name"], {"metadata": {"finalizers": None}})

    play(control_plane_without_daemonsets, scene)


def test_a_taken_revision_name_raises_the_collision_count(
    control_plane_without_daemonsets: controlplane.ControlPlane,
) -> None:
    async def scene(stage: Stage) -> None:
        made = daemonsets.daemonset_of(await stage.cluster.create(DAEMONSET, stage.daemonset()))
        body = revisions.new(made, 1)
        foreign = {**body["metadata"], "labels": {}, "ownerReferences": []}
        await stage.cluster.create(
            CONTROLLER_REVISION, {**body, "metadata": foreign, "data": {"other": True}}
        )
        async with controller(stage.cluster):
            await status_is(stage, numberAvailable=3, collisionCount=1)

    play(control_plane_without_daemonsets, scene)


def test_pods_get_the_hash_of_a_twin_revision_and_keep_running(
    control_plane_without_daemonsets: controlplane.ControlPlane,
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.cluster.create(DAEMONSET, stage.daemonset())
        async with controller(stage.cluster):
            await status_is(stage, numberAvailable=3)
            before = {body["metadata"]["uid"] for body in await own(stage, POD)}
            twin = copy.deepcopy(dict((await own(stage, CONTROLLER_REVISION))[0]))
            metadata = {
                key: twin["metadata"][key]
                for key in ("namespace", "annotations", "ownerReferences")
            }
            labels = {"app": "agent", names.REVISION_HASH: "twin"}
            twin = {
                **twin,
                "metadata": {**metadata, "name": "twin", "labels": labels},
                "revision": 2,
            }
            await stage.cluster.create(CONTROLLER_REVISION, twin)
            await merge(stage, DAEMONSET, "agent", {"metadata": {"labels": {"look": "again"}}})

            async def relabelled() -> bool:
                held = [body["metadata"]["name"] for body in await own(stage, CONTROLLER_REVISION)]
                return held == ["twin"] and {
                    pods.pod_of(body).hash for body in await own(stage, POD)
                } == {"twin"}

            await eventually(relabelled)
            assert {body["metadata"]["uid"] for body in await own(stage, POD)} == before

    play(control_plane_without_daemonsets, scene)


def test_with_a_quota_for_two_pods_the_status_counts_two(
    control_plane_without_daemonsets: controlplane.ControlPlane,
) -> None:
    async def scene(stage: Stage) -> None:
        metadata = {"name": "two", "namespace": stage.namespace}
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": metadata,
            "spec": {"hard": {"pods": "2"}},
        }
        await stage.cluster.create(QUOTA, quota)

        async def counted() -> bool:
            return bool(
                ((await stage.cluster.get(QUOTA, stage.namespace, "two")).get("status") or {}).get(
                    "hard"
                )
            )

        await eventually(counted)
        await stage.cluster.create(DAEMONSET, stage.daemonset())
        async with controller(stage.cluster):
            await status_is(
                stage, desiredNumberScheduled=3, currentNumberScheduled=2, numberReady=2
            )
            await merge(stage, QUOTA, "two", {"spec": {"hard": {"pods": "5"}}})
            await status_is(stage, numberReady=3)

    play(control_plane_without_daemonsets, scene)


def test_a_removed_taint_lets_the_pod_be_created(
    control_plane_without_daemonsets: controlplane.ControlPlane,
) -> None:
    async def scene(stage: Stage) -> None:
        name = next(iter((await stage.cluster.list(NODE)).items))["metadata"]["name"]
        await merge(
            stage, NODE, name, {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}
        )
        await stage.cluster.create(DAEMONSET, stage.daemonset())
        async with controller(stage.cluster):
            await status_is(stage, desiredNumberScheduled=2, numberAvailable=2)
            await merge(stage, NODE, name, {"spec": {"taints": None}})
            await status_is(stage, desiredNumberScheduled=3, numberAvailable=3)

    play(control_plane_without_daemonsets, scene)
