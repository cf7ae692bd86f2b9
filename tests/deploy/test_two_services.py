"""Two services with one repository and one state see each other, and say so; one that ends does not
report that the other has ended.
"""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.cli import sources
from gitops_ds.cli.sources import table_of
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.deployer import ServiceBeside
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.deploy import source_status_store
from gitops_ds.deploy.loop import Loop
from gitops_ds.deploy.source_status_store import FRESH, HEARTBEAT
from gitops_ds.notify import log_lines
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.service.web.page import rows
from gitops_ds.testing.simulator import virtual_time
from tests.deploy import test_loop
from tests.deploy.test_loop import Scene, loop_on

play = test_loop.play


async def look(scene: Scene) -> SourceStatus:
    (status,) = await sources.read(scene.cluster, "gitops-ds", virtual_time.clock()())
    return status


def second(scene: Scene, events: list[Event]) -> tuple[Loop, asyncio.Task[None]]:
    """Another service of the repository."""
    client = scene.cluster.client()
    loop = loop_on(scene.cluster, client, scene.history, events, ApplyOptions(patience=0.0))
    return loop, asyncio.create_task(loop.run())


async def test_two_services_see_each_other_and_the_end_of_one_is_not_that_of_the_other(
    scene: Scene, /
) -> None:
    await scene.settle()
    events: list[Event] = []
    loop, task = second(scene, events)
    await asyncio.sleep(4 * HEARTBEAT)
    for seen in (scene.events, events):
        (warning,) = [one for one in seen if isinstance(one, ServiceBeside)]
        assert "another service follows this repository" in (log_lines.line(warning) or "")
    status = await look(scene)
    assert (status.condition, bool(status.beside)) == (Condition.SYNCED, True)
    assert "another service follows" in status.message
    assert "another service follows" in table_of((status,), virtual_time.clock()(), wide=False)
    assert sources.as_json(status)["otherService"]
    loop.stop()
    await task
    after = await look(scene)
    assert (after.active, after.condition) == (True, Condition.SYNCED)
    await asyncio.sleep(FRESH + 2 * HEARTBEAT)
    alone = await look(scene)
    assert (alone.active, alone.beside, alone.warning) == (True, 0.0, "")


async def test_a_service_that_follows_another_leader_is_alone(scene: Scene, /) -> None:
    """The status of the earlier one is replaced, as after a kill."""
    await scene.settle()
    scene.loop.stop()
    events: list[Event] = []
    loop, task = second(scene, events)
    await asyncio.sleep(4 * HEARTBEAT)
    assert not [event for event in events if isinstance(event, ServiceBeside)]
    loop.stop()
    await task
    assert not (await look(scene)).active


async def test_services_with_states_in_two_namespaces_see_each_other(scene: Scene, /) -> None:
    await scene.settle()
    events: list[Event] = []
    options = ApplyOptions(patience=0.0)
    client = scene.cluster.client()
    loop = loop_on(scene.cluster, client, scene.history, events, options, namespace="other")
    task = asyncio.create_task(loop.run())
    await asyncio.sleep(4 * HEARTBEAT)
    for seen, namespace in ((scene.events, "other"), (events, "gitops-ds")):
        (warning,) = [one for one in seen if isinstance(one, ServiceBeside)]
        assert f"state in namespace {namespace}" in (log_lines.line(warning) or "")
    status = await look(scene)
    assert (status.condition, status.elsewhere) == (Condition.SYNCED, "other")
    assert "namespace other" in table_of((status,), virtual_time.clock()(), wide=False)
    assert sources.as_json(status)["otherNamespace"] == "other"
    assert scene.loop.status is not None
    row = rows.source(scene.loop.status)
    assert row.is_trouble
    assert "namespace other" in row.message
    loop.stop()
    await task
    await asyncio.sleep(FRESH + 2 * HEARTBEAT)
    assert (await look(scene)).warning == ""
    assert not rows.source(scene.loop.status).is_trouble


@pytest.mark.parametrize(
    ("before", "stored", "expected"),
    [
        (SourceStatus(), SourceStatus(written=5.0), 0.0),
        (SourceStatus(written=10.0), None, 0.0),
        (SourceStatus(written=10.0), SourceStatus(written=10.0), 0.0),
        (SourceStatus(written=10.0), SourceStatus(written=11.0), 11.0),
        (SourceStatus(written=10.0), SourceStatus(written=11.0, active=False), 0.0),
        (SourceStatus(written=10.0, beside=9.0), SourceStatus(written=10.0), 9.0),
        (SourceStatus(written=900.0, beside=9.0), SourceStatus(written=900.0), 0.0),
    ],
)
def test_another_service_wrote_after_us(
    before: SourceStatus, stored: SourceStatus | None, expected: float
) -> None:
    assert source_status_store.beside(before, stored, before.written + 1) == expected
