"""Random scenarios of a cluster: edits by users, failing nodes, errors of the API server, late
watches, killed controllers, clock jumps.

One seed, one life, the same each time. `python -m tests.simulator.scenarios 17` plays the
seventeenth again and prints its events.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body, Resource
from gitops_ds.kube.apimachinery import pods
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator import virtual_time
from gitops_ds.testing.simulator.faults import RequestFault, Silence, SimulatedRequest
from gitops_ds.testing.simulator.store import ObjectStore
from tests.daemonset import world
from tests.simulator import observer, outcome
from tests.simulator.observer import Observer
from tests.simulator.setup import Setup, daemonset, named, set_up

STATUSES = (401, 403, 404, 409, 410, 422, 429, 500, 503)
TROUBLES = simulator.Behaviour(
    jitter=0.5,
    faults=(
        simulator.PodFault("bad", simulator.Trouble.NEVER_PULLED),
        simulator.PodFault("crash", simulator.Trouble.CRASHES),
        simulator.PodFault("mute", simulator.Trouble.NEVER_READY, nodes="node-1"),
    ),
)
PATIENCE = 2400.0  # seconds until a cluster must be in sync after the last fault
QUIET = 400.0  # seconds in which nothing is written any more


@dataclass(repr=False)  # asyncio shows a task with its result when a run ends
class Life:
    """The random choices of the seed, and the events so far."""

    chance: random.Random
    there: Setup
    eye: Observer
    body: Body
    nodes: int
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    astray: set[str] = field(
        default_factory=set
    )  # pods whose labels were changed away from the selector
    clients: list[simulator.Client] = field(default_factory=list)
    two: bool = False  # whether there ever were two controllers at once
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def server(self) -> ObjectStore:
        """The state of the server, without a request."""
        return self.there.cluster.server.store

    @property
    def on_delete(self) -> bool:
        """Whether only people replace pods."""
        return bool(self.body["spec"]["updateStrategy"]["type"] == "OnDelete")

    def record(self, what: str) -> None:
        now = asyncio.get_running_loop().time()
        self.story.append(f"{now:8.2f} {what}")

    # --- controllers

    def begin(self) -> None:
        client = self.there.cluster.client()
        client.faults = self._good
        if self.clients and not self.two:
            self.two, self.eye.most_pods = True, self.eye.most_pods + 1
        self.clients.append(client)
        self.there.begin(Powers.FULL, client)

    def _good(self, request: SimulatedRequest) -> RequestFault | None:
        if request.verb == "delete" and request.resource == POD:
            self.eye.deleted_by_controller.add(request.name)
        return None

    async def restart(self) -> None:
        async with self._restarting:
            await self.there.kill()
            self.clients.clear()
            await asyncio.sleep(self.chance.choice((0, 0.01, 5, 40)))
            for _ in range(self.chance.choice((1, 1, 1, 2))):
                self.begin()

    async def second_controller(self) -> None:
        if len(self.clients) < 2:
            self.begin()

    # --- the connection

    async def errors_for_a_while(self) -> None:
        chance = random.Random(self.chance.random())
        share, status = (
            self.chance.choice((0.1, 0.5, 1.0)),
            self.chance.choice((*STATUSES, 0, 0, None)),
        )

        def faults(request: SimulatedRequest) -> RequestFault | None:
            if chance.random() >= share:
                return self._good(request)
            this = chance.choice((*STATUSES, 0)) if status is None else status
            if this:
                return simulator_faults.failure(this)
            silence = Silence(chance.uniform(0.1, 15), done=chance.random() < 0.5)
            if silence.done:
                self._good(request)
            return silence

        for client in self.clients:
            client.faults = faults
        await asyncio.sleep(self.chance.choice((0.5, 5, 30)))
        for client in self.clients:
            client.faults = self._good

    async def late_watches(self) -> None:
        chance = random.Random(self.chance.random())
        most = self.chance.choice((0.05, 1, 10))

        def lag(_: Resource) -> float:
            return chance.choice((0, chance.uniform(0, most)))

        for client in self.clients:
            client.lag = lag
        await asyncio.sleep(self.chance.choice((5, 30)))
        for client in self.clients:
            client.lag = simulator_faults.prompt

    async def lost_watches(self) -> None:
        error = self.chance.choice(
            (
                None,
                errors.ServerFault("garbage in the stream", 500),
                errors.ClusterUnreachable("cut"),
            )
        )
        for client in self.clients:
            client.cut_watches(error)
        if self.chance.random() < 0.5:
            self.there.cluster.compact()

    async def clock_jump(self) -> None:
        self.there.skew = self.chance.choice((-86400, -600, -30, 30, 600, 86400))
        await asyncio.sleep(self.chance.choice((1, 30, 200)))
        self.there.skew = 0.0

    # --- nodes

    def a_node(self) -> str:
        return str(self.chance.choice(self.server.all(NODE))["metadata"]["name"])

    async def node_dies(self) -> None:
        name = self.a_node()
        self.there.cluster.kill_node(name)
        self.dead.add(name)

    async def nodes_return(self) -> None:
        for name in sorted(self.dead):
            if self.server.get(NODE, "", name) is not None:
                self.there.cluster.revive_node(name)
        self.dead.clear()

    async def node_joins(self) -> None:
        self.there.cluster.add_nodes(named([self.nodes]))
        self.nodes += 1

    async def node_leaves(self) -> None:
        if len(self.server.all(NODE)) > 2:
            self.there.cluster.remove_node(self.a_node())

    async def taint(self) -> None:
        effect = self.chance.choice(("NoSchedule", "NoExecute"))
        name = self.a_node()
        body = self.server.get(NODE, "", name) or {}
        others = [
            taint for taint in body["spec"].get("taints") or () if taint["key"] != observer.TEAM
        ]
        await self._patch(
            NODE, name, {"spec": {"taints": [*others, {"key": observer.TEAM, "effect": effect}]}}
        )

    async def untaint(self) -> None:
        for body in self.server.all(NODE):
            if any(taint["key"] == observer.TEAM for taint in body["spec"].get("taints") or ()):
                left = [t for t in body["spec"]["taints"] if t["key"] != observer.TEAM]
                await self._patch(
                    NODE, body["metadata"]["name"], {"spec": {"taints": left or None}}
                )

    async def cordon(self) -> None:
        await self._patch(
            NODE, self.a_node(), {"spec": {"unschedulable": self.chance.random() < 0.5}}
        )

    # --- people

    async def _patch(
        self, resource: Resource, name: str, patch: dict[str, Any], subresource: str = ""
    ) -> None:
        namespace = "default" if resource.namespaced else ""
        type = PatchType.STRATEGIC if resource == DAEMONSET else PatchType.MERGE
        with contextlib.suppress(errors.NotFound):
            await self.there.people.patch(
                resource, namespace, name, patch, type=type, subresource=subresource
            )

    async def edit(self) -> None:
        await self.there.edit(
            self.chance.choice(("agent:1", "agent:2", "agent:3", "bad", "crash", "mute"))
        )

    async def restart_by_annotation(self) -> None:
        annotations = {"kubectl.kubernetes.io/restartedAt": str(self.chance.random())}
        await self._patch(
            DAEMONSET, "agent", {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        )

    async def undo(self) -> None:
        """As `kubectl rollout undo`: the data of a revision is the patch."""
        stored = self.server.all(CONTROLLER_REVISION)
        if stored:
            await self._patch(DAEMONSET, "agent", self.chance.choice(stored)["data"])

    def a_pod(self) -> str:
        found = [
            body["metadata"]["name"]
            for body in self.server.all(POD)
            if pods.controller_of(body["metadata"])
        ]
        return self.chance.choice(found) if found else ""

    async def delete_a_pod(self) -> None:
        with contextlib.suppress(errors.NotFound):
            await self.there.people.delete(POD, "default", self.a_pod())

    async def pod_ends(self) -> None:
        await self._patch(
            POD,
            self.a_pod(),
            {"status": {"phase": self.chance.choice(("Failed", "Succeeded"))}},
            "status",
        )

    async def take_a_pod_out(self) -> None:
        if name := self.a_pod():
            self.astray.add(name)
            await self._patch(POD, name, {"metadata": {"labels": {"app": "under-inspection"}}})

    async def delete_a_revision(self) -> None:
        if stored := self.server.all(CONTROLLER_REVISION):
            name = self.chance.choice(stored)["metadata"]["name"]
            with contextlib.suppress(errors.NotFound):
                await self.there.people.delete(CONTROLLER_REVISION, "default", name)

    async def orphan_a_revision(self) -> None:
        if stored := self.server.all(CONTROLLER_REVISION):
            await self._patch(
                CONTROLLER_REVISION,
                self.chance.choice(stored)["metadata"]["name"],
                {"metadata": {"ownerReferences": None}},
            )

    async def delete_and_make_again(self) -> None:
        await self.there.people.delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(self.chance.choice((0, 1, 20)))
        await self.there.people.create(DAEMONSET, self.body)


HAPPENINGS: dict[Callable[[Life], Awaitable[None]], int] = {
    Life.edit: 8,
    Life.undo: 3,
    Life.restart_by_annotation: 2,
    Life.delete_a_pod: 3,
    Life.pod_ends: 3,
    Life.take_a_pod_out: 1,
    Life.delete_a_revision: 1,
    Life.orphan_a_revision: 1,
    Life.delete_and_make_again: 1,
    Life.node_dies: 3,
    Life.nodes_return: 3,
    Life.node_joins: 1,
    Life.node_leaves: 1,
    Life.taint: 2,
    Life.untaint: 2,
    Life.cordon: 1,
    Life.restart: 4,
    Life.second_controller: 1,
    Life.errors_for_a_while: 6,
    Life.late_watches: 4,
    Life.lost_watches: 3,
    Life.clock_jump: 3,
}


def play(seed: int) -> Life:
    """Plays one life; what is wrong at its end, or was on the way, is in `wrong`. A crash is
    raised.
    """
    try:
        return virtual_time.run(_play(seed))
    except BaseException as error:
        error.add_note(f"scenario {seed} crashed; {_again(seed)}")
        raise


def _again(seed: int) -> str:
    return f"to see it again: .venv/bin/python -m tests.simulator.scenarios {seed}"


async def _play(seed: int) -> Life:
    chance = random.Random(seed)
    nodes, number = chance.randint(3, 8), chance.choice((1, 1, 2))
    strategy, most_down, most_pods = chance.choice(
        (
            (world.rolling(number), number, 1),
            (world.rolling(number), number, 1),
            (world.rolling(0, number), 0, 2),
            ({"type": "OnDelete"}, 0, 1),
        )
    )
    spec: dict[str, Any] = {
        "minReadySeconds": chance.choice((0, 0, 5)),
        "revisionHistoryLimit": chance.choice((10, 1, 0)),
    }
    body = daemonset(updateStrategy=strategy, **spec)
    async with set_up(nodes, body, TROUBLES, latency=chance.choice((0, 0.01, 0.3))) as there:
        life = Life(chance, there, Observer(most_down, most_pods), body, nodes)
        eye = simulator.Client(
            there.cluster.server, "observer", simulator.Habits(bookmark_every=1e9, watch_for=1e9)
        )
        watching = asyncio.create_task(life.eye.follow(eye))
        await _live(life)
        await _end_all_trouble(life)
        life.wrong += await _comes_right(life) + life.eye.wrong
        watching.cancel()
        return life


async def _live(life: Life) -> None:
    life.begin()
    await asyncio.sleep(life.chance.choice((3, 150)))
    async with asyncio.TaskGroup() as going:
        for _ in range(life.chance.randint(4, 10)):
            (what,) = life.chance.choices(list(HAPPENINGS), list(HAPPENINGS.values()))
            going.create_task(_happen(life, what))
            await asyncio.sleep(life.chance.choice((0, 0.02, 0.5, 3, 20, 150)))


async def _happen(life: Life, what: Callable[[Life], Awaitable[None]]) -> None:
    life.record(what.__name__)
    with contextlib.suppress(errors.ClusterError):
        await what(life)


async def _end_all_trouble(life: Life) -> None:
    life.record("all trouble is over")
    if not life.clients:
        life.begin()
    await life.nodes_return()
    if life.server.get(DAEMONSET, "default", "agent") is None:
        await life.there.people.create(DAEMONSET, life.body)
    await life.there.edit("agent:2")
    for name in sorted(life.astray):
        with contextlib.suppress(errors.NotFound):
            await life.there.people.delete(POD, "default", name)
    if life.on_delete:
        await asyncio.sleep(400)
        for body in life.server.all(POD):
            await life.there.people.delete(POD, "default", body["metadata"]["name"])


async def _comes_right(life: Life) -> list[str]:
    """Waits for the expected end, and then a while: it must last, and no client may write."""
    waited = 0.0
    while (wrong := outcome.wrong(life.there.cluster.server.store)) and waited < PATIENCE:
        await asyncio.sleep(20)
        waited += 20
    if wrong:
        return wrong
    life.record("all is right")
    await asyncio.sleep(life.there.cluster.habits.latency + 1)
    before = sum(client.count.writes for client in life.clients)
    await asyncio.sleep(QUIET)
    after = sum(client.count.writes for client in life.clients)
    restless = [f"{after - before} writes though all was right"] if after > before else []
    return outcome.wrong(life.there.cluster.server.store) + restless


def tale(seed: int, life: Life) -> str:
    """The failure, the events before, and the command to repeat them."""
    return "\n".join(
        (
            f"scenario {seed} does not end right; {_again(seed)}",
            *life.wrong,
            "what happened (seconds):",
            *life.story,
        )
    )


if __name__ == "__main__":
    found = play(int(sys.argv[1]))
    print(
        tale(int(sys.argv[1]), found)
        if found.wrong
        else "\n".join(("it ends right; what happened (seconds):", *found.story))
    )
