"""A standby deployer prefetches everything, writes nothing, publishes no commit, and continues at
once as leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import NewCommit
from gitops_ds.core.objects import Key
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import state_store
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec, virtual_time
from tests.deploy.test_loop import AGENT, History, loop_on

WRITES = ("create", "apply", "patch", "replace", "delete")
KEY = Key("apps", "DaemonSet", "default", "agent")


@dataclass
class Standby:
    """A leader and a standby on one cluster; each reads a history of its own."""

    cluster: simulator.SimulatedCluster
    leader: deployer_loop.Loop
    theirs: History
    client: simulator.Client
    loop: deployer_loop.Loop
    history: History
    events: list[Event] = field(default_factory=list)

    @property
    def written(self) -> int:
        return sum(self.client.count.of(verb) for verb in WRITES)

    @property
    def request_count(self) -> int:
        return self.client.count.total - self.client.count.of("watch")

    async def look(self, times: int = 6) -> None:
        for _ in range(times):
            self.loop.request()
            await asyncio.sleep(5)

    async def lead(self, times: int = 6) -> None:
        for _ in range(times):
            self.leader.request()
            await asyncio.sleep(5)

    def push(self, tag: str) -> None:
        for history in (self.theirs, self.history):
            history.push(AGENT.format(tag=tag))


def play(script: Callable[[Standby], Awaitable[None]]) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes(NodeSpec(f"node-{n}") for n in range(3))
            events: list[Event] = []
            histories, clients = (History(), History()), (cluster.client(), cluster.client())
            for history in histories:
                history.push(AGENT.format(tag="1"))
            options = ApplyOptions(patience=0.0)
            leader = loop_on(cluster, clients[0], histories[0], [], options)
            loop = loop_on(cluster, clients[1], histories[1], events, options)
            loop.lead(False)
            running = [asyncio.create_task(one.run()) for one in (leader, loop)]
            await asyncio.sleep(5)
            await script(
                Standby(cluster, leader, histories[0], clients[1], loop, histories[1], events)
            )
            for one in (leader, loop):
                one.stop()
            await asyncio.gather(*running)

    virtual_time.run(main())


async def test_a_standby_writes_nothing_and_reports_no_commits_but_knows_the_desired_state(
    scene: Standby, /
) -> None:
    await scene.look()
    scene.push("2")
    await scene.look()
    assert scene.written == 0
    assert scene.events == [event for event in scene.events if isinstance(event, deployer.Timed)]
    await scene.lead()
    await scene.look()
    assert KEY in scene.loop.manifests
    assert str(scene.loop.manifests[KEY].body).count("agent:2") == 1
    assert scene.written == 0


async def test_unchanged_objects_are_requested_once(scene: Standby, /) -> None:
    await scene.look()
    before = scene.request_count
    await scene.look(50)
    assert scene.request_count == before


async def test_a_standby_that_becomes_leader_applies_the_pending_changes(scene: Standby, /) -> None:
    await scene.look()
    scene.leader.lead(False)
    scene.push("2")
    await scene.look()
    assert scene.written == 0
    scene.loop.lead(True)
    await asyncio.sleep(1)
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert state.last_good == scene.history.id(1)
    assert [event.commit for event in scene.events if isinstance(event, NewCommit)] == [
        scene.history.id(1)
    ]


async def test_a_standby_that_becomes_leader_of_a_finished_rollout_writes_and_reports_nothing_again(
    scene: Standby, /
) -> None:
    scene.push("2")
    await scene.lead()
    await scene.look()
    scene.leader.lead(False)
    scene.loop.lead(True)
    await asyncio.sleep(5)
    assert scene.written == 1  # that this replica follows the repository
    assert not [event for event in scene.events if isinstance(event, NewCommit | deployer.Applied)]


async def test_an_unreachable_server_is_reported_once_and_retried(scene: Standby, /) -> None:
    scene.history.unreachable = True
    await scene.look()
    failed = [event for event in scene.events if isinstance(event, deployer.ReconcileFailed)]
    assert len(failed) == 1
    assert failed[0].retry_in is not None
    scene.history.unreachable = False
    scene.push("2")
    await scene.lead()
    await scene.look()
    assert "agent:2" in str(scene.loop.manifests[KEY].body)
