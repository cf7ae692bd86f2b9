"""A controller on the simulated API server, and a user: the tools of the tests of the whole
controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gitops_ds.controller.controller import Controller
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.events import base
from gitops_ds.core.objects import DAEMONSET, POD, Key
from gitops_ds.kube.apimachinery import pods
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.daemonset import world

KEY = Key("apps", "DaemonSet", "default", "agent")
BAD_IMAGE = simulator.Behaviour(faults=(simulator.PodFault("bad", simulator.Trouble.NEVER_PULLED),))


def daemonset(image: str = "agent:1", **spec: Any) -> dict[str, Any]:
    body = world.daemonset(image, **spec)
    return {**body, "metadata": {"name": "agent", "namespace": "default"}}


def strict(emit: base.Emit) -> base.Emit:
    """The same, but an internal error, which a controller survives, fails the test."""

    def handle(event: base.Event) -> None:
        assert not isinstance(event, base.TaskRestarted), event.text()
        emit(event)

    return handle


@dataclass
class Setup:
    """A cluster, another client, and the controllers on it."""

    cluster: simulator.SimulatedCluster
    people: simulator.Client
    records: list[base.Event] = field(default_factory=list)
    subscribers: list[base.Emit] = field(default_factory=list)  # of the events
    controllers: list[asyncio.Task[None]] = field(default_factory=list)
    expects_errors: bool = False  # else an internal error fails the test
    body: dict[str, Any] = field(default_factory=dict)  # the DaemonSet as it was created
    skew: float = 0.0  # seconds by which the controllers' clock is ahead

    def begin(
        self,
        powers: Powers = Powers.FULL,
        client: simulator.Client | None = None,
        *,
        direct: bool = False,
        prepare: Callable[[Controller], None] = lambda _: None,
    ) -> Controller:
        """Starts a controller, as another process would; it shares the cluster's own client, or has
        one to itself.
        """
        chance = random.Random(1).random
        right = virtual_time.clock()
        controller = Controller(
            client or self.cluster,
            powers,
            self._emit if self.expects_errors else strict(self._emit),
            clock=lambda: right() + self.skew,
            chance=chance,
        )
        if direct:
            controller.observer.observe_room()
        prepare(controller)
        self.controllers.append(asyncio.create_task(controller.run()))
        return controller

    def _emit(self, event: base.Event) -> None:
        for handle in (self.records.append, *self.subscribers):
            handle(event)

    async def kill(self) -> None:
        """Ends all controllers at once."""
        for task in self.controllers:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.controllers.clear()

    async def edit(self, image: str) -> None:
        containers = [{"name": "agent", "image": image}]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        await self.people.patch(DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC)

    async def pods(self) -> Counter[tuple[str, str]]:
        """How many pods of each node and image."""
        items = (await self.people.list(POD)).items
        return Counter(
            (pods.pod_of(body).node, body["spec"]["containers"][0]["image"]) for body in items
        )

    async def status(self) -> dict[str, Any]:
        body = await self.people.get(DAEMONSET, "default", "agent")
        return dict(body.get("status") or {})


@contextlib.asynccontextmanager
async def set_up(
    nodes: int | Iterable[simulator.NodeSpec],
    body: dict[str, Any] | None = None,
    behaviour: simulator.Behaviour = BAD_IMAGE,
    **habits: float,
) -> AsyncIterator[Setup]:
    async with simulator.SimulatedCluster(behaviour, habits=simulator.Habits(**habits)) as cluster:
        cluster.add_nodes(named(range(nodes)) if isinstance(nodes, int) else nodes)
        people = cluster.client("people")
        there = Setup(cluster, people, body=body or daemonset())
        await people.create(DAEMONSET, there.body)
        try:
            yield there
        finally:
            await there.kill()


def named(numbers: Iterable[int], **about: Any) -> list[simulator.NodeSpec]:
    """Nodes `node-0`, `node-1` and so on, alike but for the name."""
    return [simulator.NodeSpec(f"node-{number}", **about) for number in numbers]


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scene()

    virtual_time.run(run())


def each(nodes: int, image: str = "agent:1") -> dict[tuple[str, str], int]:
    return {(f"node-{index}", image): 1 for index in range(nodes)}
