"""The delivery of notifications, in virtual time on the simulated cluster: receivers that are
unreachable for days.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gitops_ds.core.events.base import Emit, Event, EventOrigin, TaskRestarted
from gitops_ds.core.events.bus import EventBus
from gitops_ds.core.events.commits import NewCommit
from gitops_ds.core.events.definition import Topic
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.events.notifications import (
    CONFIG_MAP_NAME,
    Notification,
    NotificationFailed,
    NotificationSent,
)
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.objects import CONFIG_MAP, NAMESPACE, CommitId
from gitops_ds.notify.notifications import NotificationBatch
from gitops_ds.service.notifications.dispatcher import NotificationDispatcher
from gitops_ds.service.notifications.outbox import BATCH_SIZE, WAITING
from gitops_ds.service.notifications.sender import DeliveryFailed, SenderContext
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.service.settings.service import ReceiverSettings, Service
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator import virtual_time
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest, failure

CHAT = ReceiverSettings("chat", "", per_minute=6)
PAGER = ReceiverSettings("pager", "", topics=frozenset((Topic.FAILED, Topic.APPLIED)))


@dataclass
class Receivers:
    """The items that each received; `trouble` is the reason for a refusal now."""

    took: dict[str, list[tuple[float, NotificationBatch]]] = field(default_factory=dict)
    trouble: dict[str, Exception] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    tries: list[float] = field(default_factory=list)

    async def post(self, settings: ReceiverSettings, letter: NotificationBatch) -> None:
        self.tries.append(asyncio.get_running_loop().time())
        if settings.name in self.hanging:
            await asyncio.sleep(3600)
        if settings.name in self.trouble:
            raise self.trouble[settings.name]
        self.took.setdefault(settings.name, []).append((asyncio.get_running_loop().time(), letter))

    def of(self, name: str) -> list[Notification]:
        return [item for _, letter in self.took.get(name, ()) for item in letter.items]


@dataclass
class Scene:
    cluster: simulator.SimulatedCluster
    client: simulator.Client
    receivers: Receivers
    emitted: list[Event] = field(default_factory=list)
    leadership: Leadership = field(default_factory=Leadership)  # of the newest process

    @asynccontextmanager
    async def service(self) -> AsyncIterator[tuple[Emit, NotificationDispatcher]]:
        """A leading process, and the emitter of its deployer."""
        service = Service(
            repositories=(RepositorySettings(url="https://example.com/fleet"),),
            notify=(CHAT, PAGER),
        )
        clock = virtual_time.clock()
        around = SenderContext("eu-1", self.emitted.append, clock, lambda: 0.0, self.receivers.post)
        self.leadership = leadership = Leadership(leads=False)
        part = NotificationDispatcher(service, self.client, self.emitted.append, leadership, around)
        running = asyncio.create_task(part.run())
        leadership.change(True)
        yield EventBus(part.handle).of(EventOrigin("fleet", "example.com/fleet")), part
        part.stop()
        await running

    def at(self) -> float:
        return self.cluster.server.now()

    def events_of(self, kind: type[Event]) -> list[Event]:
        return [record for record in self.emitted if type(record) is kind]


def commit(number: int, at: float) -> NewCommit:
    return NewCommit(at, CommitId(f"{number:040x}"), f"subject {number}", "Ann <ann@example.com>")


def play(
    script: Callable[[Scene], Awaitable[None]],
    faults: simulator_faults.Faults = simulator_faults.none,
) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            await cluster.create(
                NAMESPACE,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}},
            )
            await script(Scene(cluster, cluster.client(faults=faults), Receivers()))

    virtual_time.run(main())


async def test_each_receiver_gets_the_topics_of_its_settings_and_an_idle_service_writes_nothing(
    scene: Scene, /
) -> None:
    async with scene.service() as (tell, _):
        await asyncio.sleep(60)
        assert scene.client.count.writes == 0
        tell(commit(1, scene.at()))
        tell(Reconciled(scene.at(), CommitId(f"{1:040x}"), 2, ()))
        await asyncio.sleep(5)
        assert [item.topic for item in scene.receivers.of("chat")] == [
            Topic.COMMIT,
            Topic.APPLIED,
        ]
        assert [item.topic for item in scene.receivers.of("pager")] == [Topic.APPLIED]
        assert len(scene.receivers.took["chat"]) == 1  # together
        assert scene.client.count.writes == 1
        for _ in range(1000):
            tell(Reconciled(scene.at(), CommitId(f"{1:040x}"), 0, ()))
            await asyncio.sleep(60)
        assert scene.client.count.writes == 1
    assert scene.client.count.writes == 1
    assert scene.events_of(NotificationFailed) == []


async def test_an_unreachable_receiver_delays_no_other_and_is_notified_later(
    scene: Scene, /
) -> None:
    scene.receivers.hanging.add("chat")
    async with scene.service() as (tell, _):
        tell(commit(1, scene.at()))
        tell(Reconciled(scene.at(), CommitId(f"{1:040x}"), 2, ()))
        await asyncio.sleep(5)
        assert len(scene.receivers.of("pager")) == 1
        assert scene.receivers.of("chat") == []
    scene.receivers.hanging.clear()
    scene.receivers.trouble["chat"] = DeliveryFailed("it answers 503")
    async with scene.service() as (tell, _):
        await asyncio.sleep(1800)
        # reported once
        assert [str(record) for record in scene.events_of(NotificationFailed)] == [
            str(scene.events_of(NotificationFailed)[0])
        ]
        scene.receivers.trouble.clear()
        await asyncio.sleep(700)
        assert [item.topic for item in scene.receivers.of("chat")] == [
            Topic.COMMIT,
            Topic.APPLIED,
        ]
        await asyncio.sleep(3600)
    assert len(scene.receivers.of("pager")) == 1
    assert [
        record.items
        for record in scene.events_of(NotificationSent)
        if isinstance(record, NotificationSent)
    ] == [1, 2]


async def test_an_internal_error_at_one_receiver_stops_no_other(scene: Scene, /) -> None:
    scene.receivers.trouble["chat"] = OverflowError("an unexpected answer")
    async with scene.service() as (tell, _):
        for number in range(5):
            tell(commit(number, scene.at()))
            tell(Reconciled(scene.at(), CommitId(f"{number:040x}"), 2, ()))
            await asyncio.sleep(15)
            assert len(scene.receivers.of("pager")) == number + 1
        assert {record.task for record in scene.emitted if isinstance(record, TaskRestarted)} == {
            "receiver chat"
        }
        scene.receivers.trouble.clear()
        await asyncio.sleep(120)
    assert len(scene.receivers.of("chat")) == 10


async def test_a_sent_notification_is_not_sent_again_after_a_restart(scene: Scene, /) -> None:
    for _ in range(3):
        async with scene.service() as (tell, _):
            tell(commit(1, scene.at()))
            await asyncio.sleep(10)
    assert len(scene.receivers.of("chat")) == 1
    assert scene.client.count.writes == 1


async def test_an_event_right_before_the_end_is_sent_by_the_next_process(scene: Scene, /) -> None:
    async with scene.service() as (tell, _):
        await asyncio.sleep(10)
        tell(commit(1, scene.at()))
        await asyncio.sleep(0.1)
    assert scene.receivers.of("chat") == []
    async with scene.service():
        await asyncio.sleep(10)
    assert len(scene.receivers.of("chat")) == 1


async def test_a_standby_sends_nothing_and_the_next_leader_continues(scene: Scene, /) -> None:
    scene.receivers.trouble["chat"] = DeliveryFailed("it answers 503")
    async with scene.service() as (tell, _):
        leadership = scene.leadership
        tell(commit(1, scene.at()))
        await asyncio.sleep(10)
        leadership.change(False)
        await asyncio.sleep(1)
        scene.receivers.trouble.clear()
        tell(commit(2, scene.at()))
        await asyncio.sleep(3600)
        assert scene.receivers.of("chat") == []
        async with scene.service():
            await asyncio.sleep(10)
            assert [item.commit for item in scene.receivers.of("chat")] == [f"{1:040x}"]
        leadership.change(True)
        await asyncio.sleep(60)
        assert len(scene.receivers.of("chat")) == 1


async def test_a_flood_is_few_messages_and_a_number(scene: Scene, /) -> None:
    async with scene.service() as (tell, _):
        for number in range(600):
            tell(commit(number, scene.at()))
            await asyncio.sleep(1)
        await asyncio.sleep(120)
    took = scene.receivers.took["chat"]
    assert sum(len(letter.items) + letter.omitted for _, letter in took) == 600
    for start, _ in took:
        # a burst, and what a minute allows
        assert sum(1 for at, _ in took if start <= at < start + 60) <= 12
    assert len(took) <= 6 + 12 * 6
    assert max(len(letter.items) for _, letter in took) <= BATCH_SIZE
    assert scene.client.count.writes <= 330


async def test_the_delay_increases_and_respects_retry_after(scene: Scene, /) -> None:
    scene.receivers.trouble["chat"] = DeliveryFailed("it answers 500")
    async with scene.service() as (tell, _):
        tell(commit(1, scene.at()))
        await asyncio.sleep(5000)
        gaps = [
            after - before
            for before, after in zip(scene.receivers.tries, scene.receivers.tries[1:], strict=False)
        ]
        assert [round(gap) for gap in gaps[:4]] == [6, 11, 21, 41]
        assert max(gaps) <= 602
        scene.receivers.trouble["chat"] = DeliveryFailed("it answers 429", 2000.0)
        await asyncio.sleep(601)
        before = len(scene.receivers.tries)
        await asyncio.sleep(1300)
        assert len(scene.receivers.tries) == before


async def test_a_notification_is_dropped_after_a_day(scene: Scene, /) -> None:
    scene.receivers.trouble["chat"] = DeliveryFailed("it answers 404")
    async with scene.service() as (tell, _):
        for number in range(WAITING + 5):
            tell(commit(number, scene.at()))
        await asyncio.sleep(2 * 86_400)
        assert [
            record.lost
            for record in scene.events_of(NotificationFailed)
            if isinstance(record, NotificationFailed)
        ] == [0, WAITING + 5]
        tries = len(scene.receivers.tries)
        await asyncio.sleep(86_400)
        assert len(scene.receivers.tries) == tries
        scene.receivers.trouble.clear()
        tell(commit(1000, scene.at()))
        await asyncio.sleep(700)
        assert [item.mark for item in scene.receivers.of("chat")] == ["once"]


@pytest.mark.parametrize("status", [403, 503])
def test_notifications_are_sent_though_the_outbox_can_not_be_written(status: int) -> None:
    def faults(request: SimulatedRequest) -> RequestFault | None:
        return failure(status) if request.verb == "apply" else None

    async def script(scene: Scene) -> None:
        async with scene.service() as (tell, _):
            tell(commit(1, scene.at()))
            await asyncio.sleep(600)
            assert len(scene.receivers.of("chat")) == 1
            (complaint,) = scene.events_of(NotificationFailed)
            assert isinstance(complaint, NotificationFailed)
            assert CONFIG_MAP_NAME in complaint.receiver

    play(script, faults)


async def test_an_outbox_of_another_form_is_replaced(scene: Scene, /) -> None:
    metadata = {"namespace": "gitops-ds", "name": CONFIG_MAP_NAME}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"news.json": '{"version": 7}'},
    }
    await scene.cluster.create(CONFIG_MAP, body)
    async with scene.service() as (tell, _):
        tell(commit(1, scene.at()))
        await asyncio.sleep(60)
    assert len(scene.receivers.of("chat")) == 1
    assert len(scene.events_of(NotificationFailed)) == 1
