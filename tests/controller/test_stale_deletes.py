"""A pod of a rollout is deleted only for the DaemonSet as it is in the cluster, and only in the
epoch of the decision.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops_ds.controller import executor
from gitops_ds.controller.actions import WriteHooks
from gitops_ds.core.decision import Decision, DeleteCause, DeletePod, Observation
from gitops_ds.core.objects import DAEMONSET, POD, Body, Key
from gitops_ds.kube.apimachinery import daemonsets, pods
from gitops_ds.rollouts.state import keys
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec
from tests.simulator.setup import daemonset

KEY = Key("", "Pod", "default", "agent-x")


@dataclass
class Epoch:
    """An epoch that a test ends."""

    is_current: bool = True
    ended: list[bool] = field(default_factory=list)

    def end(self) -> None:
        self.ended.append(True)


async def delete(body: Body, cluster: simulator.SimulatedCluster, epoch: Epoch) -> bool:
    """Performs the delete of the pod for the DaemonSet as it was observed; whether it is gone."""
    pod = pods.pod_of(await cluster.get(POD, "default", "agent-x"))
    action = DeletePod(KEY, pod.uid, "node-0", DeleteCause.OUTDATED, "its node is updated")
    stage = executor.ExecutionContext(
        cluster, cluster.server.now, WriteHooks(lambda *_: None), lambda _: None,
        asyncio.Semaphore(1), lambda _: epoch,
    )  # fmt: skip
    seen = Observation(cluster.server.now(), daemonsets.daemonset_of(body), ())
    outcome = await executor.perform(stage, seen, Decision(((action,),)))
    assert bool(outcome.errors) == bool(outcome.refused)
    return not outcome.errors


async def world(cluster: simulator.SimulatedCluster) -> Body:
    """A DaemonSet with a proven template, and a pod."""
    cluster.add_nodes([NodeSpec("node-0")])
    body: dict[str, Any] = daemonset()
    body["metadata"]["annotations"] = {keys.PROVEN: "{}"}
    made = await cluster.create(DAEMONSET, body)
    spec = {"containers": [{"name": "agent", "image": "agent:1"}]}
    await cluster.create(
        POD, {"metadata": {"namespace": "default", "name": "agent-x"}, "spec": spec}
    )
    return made


async def unchanged(cluster: simulator.SimulatedCluster, body: Body) -> Body:
    return body


async def counted(cluster: simulator.SimulatedCluster, body: Body) -> Body:
    """Its status changes, as often during a rollout."""
    status = {"status": {"numberReady": 1}}
    await cluster.patch(
        DAEMONSET, "default", body["metadata"]["name"], status, subresource="status"
    )
    return body


async def targeted(cluster: simulator.SimulatedCluster, body: Body) -> Body:
    annotations = {keys.TARGET: "agent-another"}
    patch = {"metadata": {"annotations": annotations}}
    await cluster.patch(DAEMONSET, "default", body["metadata"]["name"], patch)
    return body


async def created_again(cluster: simulator.SimulatedCluster, body: Body) -> Body:
    metadata = {**body["metadata"], "uid": "of-before"}
    return {**body, "metadata": metadata}


async def restored(cluster: simulator.SimulatedCluster, body: Body) -> Body:
    """What was observed is newer than the cluster."""
    return {**body, "metadata": {**body["metadata"], "resourceVersion": "999999"}}


@pytest.mark.parametrize(
    ("change", "is_deleted"),
    [
        (unchanged, True),
        (counted, True),
        (targeted, False),
        (created_again, False),
        (restored, False),
    ],
)
async def test_a_delete_is_for_the_daemonset_as_it_is(change: Any, is_deleted: bool) -> None:
    async with simulator.SimulatedCluster() as cluster:
        body = await world(cluster)
        epoch = Epoch()
        assert await delete(await change(cluster, body), cluster, epoch) is is_deleted
        assert bool(epoch.ended) is (change is restored)


async def test_nothing_is_written_after_the_end_of_an_epoch() -> None:
    async with simulator.SimulatedCluster() as cluster:
        body = await world(cluster)
        writes = cluster.count.writes
        assert not await delete(body, cluster, Epoch(is_current=False))
        assert cluster.count.writes == writes
