"""Nodes that lose their agent without a commit are reported once, with number, pool and cause; an
explained loss is not reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.events.agents import CoverageLost, summarize_losses
from gitops_ds.core.health import LossCause
from gitops_ds.core.objects import DAEMONSET, NODE, POD
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing.simulator import NodeSpec, faults
from tests.simulator.setup import KEY, Setup, daemonset, set_up
from tests.status.tracked import tracked

POOL = "cloud.google.com/gke-nodepool"
NODES = [
    NodeSpec(f"node-{n:02d}", {"disk": "ssd", POOL: "gpu" if n < 8 else "cpu"}) for n in range(20)
]


@dataclass
class Watched:
    there: Setup
    tracker: StatusTracker
    quota: list[bool]

    @property
    def events(self) -> list[CoverageLost]:
        return [event for event in self.there.records if isinstance(event, CoverageLost)]


def ours(commit: str = "a" * 40, **spec: Any) -> dict[str, Any]:
    body = daemonset(**spec)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    metadata = {
        **body["metadata"],
        "labels": {names.OWNER_LABEL: "fleet"},
        "annotations": {names.COMMIT: commit},
    }
    return {**body, "metadata": metadata}


@contextlib.asynccontextmanager
async def watched(nodes: list[NodeSpec] = NODES) -> AsyncIterator[Watched]:
    quota = [False]

    def refuse(request: faults.SimulatedRequest) -> faults.RequestFault | None:
        full = quota[0] and (request.verb, request.resource) == ("create", POD)
        return errors.Forbidden("exceeded quota: pods", 403, "Forbidden") if full else None

    async with set_up(
        nodes,
        ours(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}),
    ) as there:
        controller = there.begin(client=there.cluster.client(faults=refuse))
        async with tracked(there, controller, emit=there.records.append) as tracker:
            await asyncio.sleep(60)
            yield Watched(there, tracker, quota)


def label(there: Setup, node: int, **labels: str | None) -> Awaitable[object]:
    return there.people.patch(NODE, "", f"node-{node:02d}", {"metadata": {"labels": labels}})


async def relabel(scene: Watched) -> None:
    for node in range(5, 10):
        await label(scene.there, node, disk=None)
        await asyncio.sleep(1)


async def taint(scene: Watched) -> None:
    taints = [{"key": "team", "value": "ml", "effect": "NoExecute"}]
    await scene.there.people.patch(NODE, "", "node-19", {"spec": {"taints": taints}})


async def edit(scene: Watched) -> None:
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "nvme"}}}}}
    await scene.there.people.patch(DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC)


async def refuse(scene: Watched) -> None:
    scene.quota[0] = True
    for pod in (await scene.there.people.list(POD)).items:
        if pod["spec"]["nodeName"] in ("node-00", "node-01"):
            await scene.there.people.delete(POD, "default", pod["metadata"]["name"])


LOSSES: list[tuple[Callable[[Watched], Awaitable[None]], LossCause, str]] = [
    (
        relabel,
        LossCause.LABEL,
        (
            "5 of 20 nodes lost their agent without a commit: pool gpu: 3 (label disk=ssd was "
            "removed); pool cpu: 2"
        ),
    ),
    (
        taint,
        LossCause.TAINT,
        (
            "1 of 20 nodes lost their agent without a commit: pool cpu: 1 (taint team=ml:NoExecute "
            "was set)"
        ),
    ),
    (
        edit,
        LossCause.TEMPLATE,
        (
            "pool cpu: 12 (its template was edited without a commit); pool gpu: 8 (its template "
            "was edited"
        ),
    ),
    (
        refuse,
        LossCause.REFUSED,
        (
            "2 of 20 nodes lost their agent without a commit: pool gpu: 2 (a new pod is refused: "
            "exceeded quota: pods)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("lose", "cause", "words"), LOSSES, ids=[cause.value for _, cause, _ in LOSSES]
)
async def test_a_loss_is_reported_once_with_number_pool_and_cause(
    lose: Callable[[Watched], Awaitable[None]], cause: LossCause, words: str
) -> None:
    async with watched() as watched_cluster:
        await lose(watched_cluster)
        await asyncio.sleep(15)
        (event,) = watched_cluster.events
        assert {loss.cause for loss in event.losses} == {cause}
        assert words in summarize_losses(event.losses, event.of)
        assert len(watched_cluster.tracker.losses(KEY)) == len(event.losses)
        await asyncio.sleep(600)
        assert len(watched_cluster.events) == 1


async def commit(scene: Watched) -> None:
    body = ours("b" * 40)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "nvme"}
    patch = {
        "metadata": {"annotations": body["metadata"]["annotations"]},
        "spec": {"template": body["spec"]["template"]},
    }
    await scene.there.people.patch(DAEMONSET, "default", "agent", patch)


async def leave(scene: Watched) -> None:
    for node in range(5):
        scene.there.cluster.remove_node(f"node-{node:02d}")


async def die(scene: Watched) -> None:
    scene.there.cluster.kill_node("node-03")
    await asyncio.sleep(60)


async def there_and_back(scene: Watched) -> None:
    await label(scene.there, 1, disk=None)
    await asyncio.sleep(2)
    await label(scene.there, 1, disk="ssd")


async def move_to_another_variant(scene: Watched) -> None:
    body = ours(selector={"matchLabels": {"app": "agent", names.VARIANT: "big"}})
    spec = body["spec"]["template"]["spec"] = {
        **body["spec"]["template"]["spec"],
        "nodeSelector": {"disk": "big"},
    }
    body["spec"]["template"] = {
        "metadata": {"labels": {"app": "agent", names.VARIANT: "big"}},
        "spec": spec,
    }
    await scene.there.people.create(
        DAEMONSET, {**body, "metadata": {**body["metadata"], "name": "agent-big"}}
    )
    await asyncio.sleep(5)
    await label(scene.there, 1, disk="big")


async def delete(scene: Watched) -> None:
    await scene.there.people.delete(DAEMONSET, "default", "agent")


@pytest.mark.parametrize(
    "do", [commit, leave, die, there_and_back, move_to_another_variant, delete]
)
async def test_an_explained_absence_is_not_a_loss(do: Callable[[Watched], Awaitable[None]]) -> None:
    async with watched() as watched_cluster:
        await do(watched_cluster)
        await asyncio.sleep(120)
        assert watched_cluster.events == []
        assert watched_cluster.tracker.losses(KEY) == ()


async def test_a_loss_ends_when_the_agent_is_back_and_a_second_one_is_reported_again() -> None:
    async with watched() as watched_cluster:
        for disk in (None, "ssd", None):
            await label(watched_cluster.there, 4, disk=disk)
            await asyncio.sleep(30)
            assert bool(watched_cluster.tracker.losses(KEY)) == (disk is None)
        assert [len(event.losses) for event in watched_cluster.events] == [1, 1]


@pytest.mark.slow
async def test_twenty_of_five_hundred_nodes_are_one_event() -> None:
    nodes = [NodeSpec(f"node-{n:03d}", {"disk": "ssd", POOL: "cpu"}) for n in range(500)]
    async with watched(nodes) as watched_cluster:
        for n in range(20):
            await watched_cluster.there.people.patch(
                NODE, "", f"node-{n:03d}", {"metadata": {"labels": {"disk": "hdd"}}}
            )
        await asyncio.sleep(15)
        (event,) = watched_cluster.events
        words = (
            "20 of 500 nodes lost their agent without a commit: pool cpu: 20 (label disk=ssd "
            "became hdd)"
        )
        assert summarize_losses(event.losses, event.of) == words
