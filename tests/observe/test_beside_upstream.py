"""Ours in the shadow of Kubernetes' own DaemonSet controller, through a long story on 200 nodes:
they agree.

What they don't agree on is explained in docs/beside-upstream.md.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.controller.controller import Controller
from gitops_ds.core.cluster import Cluster, PatchType, Selection
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.base import (
    Compared,
    Differed,
    DifferenceKind,
    Event,
    Performed,
    StatusWritten,
)
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Body, Key, Resource
from gitops_ds.daemonset import decide
from gitops_ds.kube.client import config, rest
from tests import controlplane

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.xdist_group("beside-upstream"),
]

PATIENCE = 120.0  # seconds until an expected change has happened
SPACE = "default"
AGENT, STORAGE = (
    Key(DAEMONSET.group, DAEMONSET.kind, SPACE, name) for name in ("agent", "storage")
)


def daemonset(name: str, update: dict[str, Any], **pod: Any) -> dict[str, Any]:
    labels = {"app": name}
    spec = {"containers": [{"name": "agent", "image": "registry.example.com/agent:1"}], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": update},
        },
    }


# Permitted differences from upstream's controller, and their explanation in
# docs/beside-upstream.md.
EXPLAINED = [
    (DifferenceKind.ROLLOUT, r"put \d+ at risk", "More nodes at risk than the budget"),
]


def is_explained(difference: Differed) -> bool:
    return any(
        difference.what is what and re.fullmatch(theirs, difference.theirs)
        for what, theirs, _ in EXPLAINED
    )


@dataclass
class Story:
    """A cluster, ours in the shadow, and what people do. `ended` counts the pods that they ended,
    by node.
    """

    cluster: Cluster
    controller: Controller
    records: list[Event]
    ended: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    begun: float = field(default_factory=time.time)

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while not await holds():
            assert loop.time() < end, (
                f"{what}: not in {PATIENCE} seconds; {self.records_of(Differed)[-5:]}"
            )
            await asyncio.sleep(0.1)

    def records_of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    async def together(self, work: Iterable[Awaitable[Any]]) -> None:
        await asyncio.gather(*work)

    async def settled(self, *keys: Key) -> None:
        """Both controllers have finished: the status has every desired pod, and the interval of the
        comparison has ended.
        """
        await self.together(map(self._settled, keys))

    async def _settled(self, key: Key) -> None:
        await self.until(f"{key} is rolled out", lambda: self._is_done(key))
        at = time.time()

        async def compared() -> bool:
            return any(
                record.daemonset == key and record.at >= at for record in self.records_of(Compared)
            )

        await self.until(f"the interval of {key} ends", compared)

    async def _is_done(self, key: Key) -> bool:
        body = await self.cluster.get(DAEMONSET, key.namespace, key.name)
        status, generation = body.get("status") or {}, body["metadata"]["generation"]
        seen = self.controller.observer.observe(key)
        if (
            status.get("observedGeneration") != generation
            or seen is None
            or seen.daemonset.generation != generation
        ):
            return False
        decision = decide.decide(seen)
        layout = decide.layout(seen)
        well = all(
            node_pods.staying and all(map(layout.updated, node_pods.staying))
            for node_pods in layout.nodes
            if node_pods.wanted
        )
        return well and not decision.actions and decision.status is None

    async def patch(
        self, resource: Resource, name: str, patch: Any, *, subresource: str = ""
    ) -> Body:
        namespace = SPACE if resource.namespaced else ""
        return await self.cluster.patch(
            resource, namespace, name, patch, type=PatchType.STRATEGIC, subresource=subresource
        )

    async def roll(self, name: str, tag: str, **update: Any) -> None:
        spec: dict[str, Any] = {
            "template": {
                "spec": {
                    "containers": [{"name": "agent", "image": f"registry.example.com/agent:{tag}"}]
                }
            }
        }
        if update:
            spec["updateStrategy"] = {"rollingUpdate": update}
        await self.patch(DAEMONSET, name, {"spec": spec})

    async def label(self, node: str, disk: str | None) -> None:
        await self.patch(NODE, node, {"metadata": {"labels": {"disk": disk}}})

    async def taint(self, node: str, *effects: str) -> None:
        taints = [{"key": "maintenance", "effect": effect} for effect in effects]
        await self.cluster.patch(NODE, "", node, {"spec": {"taints": taints}}, type=PatchType.MERGE)

    async def pods_on(self, app: str, *nodes: str) -> list[Body]:
        listing = await self.cluster.list(POD, Selection(SPACE, labels=f"app={app}"))
        return [body for body in listing.items if body["spec"].get("nodeName") in nodes]

    async def drain(self, node: str) -> None:
        """Cordons it and ends what runs there, as a person in a hurry would, without sparing
        DaemonSets.
        """
        await self.patch(NODE, node, {"spec": {"unschedulable": True}})
        for body in await self.pods_on("agent", node) + await self.pods_on("storage", node):
            await self.cluster.delete(
                POD, SPACE, body["metadata"]["name"], uid=body["metadata"]["uid"]
            )
            self.ended[node] += 1

    async def lose(self, node: str) -> None:
        """Its pods are ended by the garbage collector some time later, or by a rollout before."""
        self.lost.add(node)
        await self.cluster.delete(NODE, "", node)

    async def counts(self, daemonset: str, **least: int) -> bool:
        """Whether the status is of the present spec, with that many."""
        body = await self.cluster.get(DAEMONSET, SPACE, daemonset)
        status = body.get("status") or {}
        current = status.get("observedGeneration") == body["metadata"]["generation"]
        return current and all(
            status.get(counter, 0) >= number for counter, number in least.items()
        )

    def elsewhere(self) -> Counter[str]:
        """What ours saw go that it would have kept, on the nodes that are still there."""
        counts: Counter[str] = sum(
            (Counter(record.elsewhere) for record in self.records_of(Compared)), Counter()
        )
        return Counter({node: pods for node, pods in counts.items() if node not in self.lost})

    async def fail(self, node: str) -> None:
        """The node had no memory left for it."""
        for body in await self.pods_on("agent", node):
            status = {
                "status": {"phase": "Failed", "reason": "Evicted", "message": "out of memory"}
            }
            await self.patch(POD, body["metadata"]["name"], status, subresource="status")


def name(number: int) -> str:
    return f"node-{number:03d}"


@asynccontextmanager
async def story(plane: controlplane.ControlPlane) -> AsyncIterator[Story]:
    records: list[Event] = []
    async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
        controller = Controller(
            cluster, Powers.OBSERVE, records.append, clock=time.time, chance=random.random
        )
        running = asyncio.create_task(controller.run())
        try:
            await asyncio.wait_for(controller.observer.synced.wait(), PATIENCE)
            yield Story(cluster, controller, records)
        finally:
            controller.stop()
            await running


async def play_story(there: Story) -> None:
    """The whole story; every part begins where the one before has settled."""
    both, nodes = (AGENT, STORAGE), there.cluster
    await there.together(there.label(name(number), "ssd") for number in range(0, 200, 2))
    await nodes.create(DAEMONSET, daemonset("agent", {"maxUnavailable": "10%"}))
    await nodes.create(
        DAEMONSET,
        daemonset(
            "storage", {"maxUnavailable": 0, "maxSurge": "10%"}, nodeSelector={"disk": "ssd"}
        ),
    )
    await there.settled(*both)

    # Twenty nodes join; some get the label, some lose it.
    await there.together(
        nodes.create(NODE, controlplane.node(name(number), {"disk": "ssd"}))
        for number in range(200, 220)
    )
    await there.together(there.label(name(number), "ssd") for number in range(1, 21, 2))
    await there.together(there.label(name(number), None) for number in range(20, 30, 2))
    await there.settled(*both)

    # Drains: a cordoned node gets its pods again, a tainted one does not. Two nodes are lost
    # permanently. Upstream's controller gets no event for a lost node, so that happens first: the
    # drains make it count again. Neither has a pod of the DaemonSet with surge, whose rollout would
    # wait for the garbage collector.
    await there.together(there.lose(name(number)) for number in (39, 139))
    await there.together(there.taint(name(number), "NoSchedule") for number in range(34, 38))
    await there.together(there.drain(name(number)) for number in range(30, 38))
    await there.settled(*both)

    # Maintenance: every pod is evicted, and created again.
    await there.together(there.taint(name(number), "NoExecute") for number in range(40, 60))
    await there.settled(*both)
    await there.together(there.taint(name(number)) for number in range(34, 60) if number != 39)
    await there.settled(*both)

    await there.roll("agent", "2")
    await there.roll("storage", "2")
    await there.settled(*both)

    # One is undone in the middle; one can't start, stops at the budget, and is taken back.
    await there.roll("agent", "3", maxUnavailable=8)
    await there.roll("storage", "broken", maxUnavailable="10%", maxSurge=0)
    await there.until(
        "sixty nodes are updated", lambda: there.counts("agent", updatedNumberScheduled=60)
    )
    await there.until(
        "the budget is used up", lambda: there.counts("storage", numberUnavailable=12)
    )
    await there.roll("agent", "2")
    await there.roll("storage", "2")
    await there.settled(*both)

    await there.together(there.fail(name(number)) for number in range(60, 70))
    await there.settled(AGENT)


def test_the_two_agree_through_a_long_story(tmp_path: Path) -> None:
    plane = controlplane.ControlPlane(
        tmp_path / "plane", controlplane.Wanted(nodes=200, pod_ready_milliseconds=100)
    )

    async def run() -> Story:
        async with story(plane) as there:
            await play_story(there)
            return there

    try:
        plane.start()
        there = asyncio.run(run())
    finally:
        plane.stop()
    assert [record for record in there.records_of(Differed) if not is_explained(record)] == []
    assert there.records_of(Performed) == there.records_of(StatusWritten) == []
    assert there.elsewhere() == there.ended
    assert (
        sum(record.replaced for record in there.records_of(Compared) if record.daemonset == AGENT)
        >= 218 + 60
    )
    assert (
        sum(record.replaced for record in there.records_of(Compared) if record.daemonset == STORAGE)
        >= 120
    )
    assert all(
        record.differences == 0 for record in there.records_of(Compared) if not record.replaced
    )


def test_every_permitted_difference_is_explained_in_the_document() -> None:
    headings = [
        line
        for line in (controlplane.ROOT / "docs/beside-upstream.md").read_text("utf-8").splitlines()
        if line.startswith("##")
    ]
    assert {f"### {heading}" for _, _, heading in EXPLAINED} <= set(headings)
