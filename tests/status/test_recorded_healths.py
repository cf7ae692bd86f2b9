"""The table of agents at rest needs no pods while a service runs, and equals that of all lists; a
record that is not the present one does not count.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gitops_ds.cli.get import tables
from gitops_ds.core import names
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.deploy import source_status_store
from gitops_ds.deploy.source_status_store import FRESH
from gitops_ds.status import agent_lists, status_writer
from gitops_ds.status.agent_lists import EVERY, AgentScope
from gitops_ds.testing.simulator import virtual_time
from tests.simulator.setup import KEY
from tests.status.test_agent_lists import Recorded
from tests.status.test_status_writer import GOOD, Scene, scene

TABLE = AgentScope(recorded_from=0)


async def follow(made: Scene, **fields: Any) -> None:
    """Stores the status of a service that follows the repository."""
    fields = {"written": virtual_time.clock()(), "active": True, **fields}
    status = SourceStatus("fleet", condition=Condition.SYNCED, message="applied", **fields)
    body = source_status_store.body("gitops-ds", status)
    await made.there.people.apply(CONFIG_MAP, body, manager="service", force=True)


async def compared(made: Scene, scope: AgentScope = TABLE) -> Recorded:
    """The client of a list for a table, whose rows equal those of the whole list."""
    now, client = virtual_time.clock()(), Recorded(made.there.people)
    read: Any = client
    agents = await agent_lists.list_agents(read, "gitops-ds", now, scope=scope)
    whole = await agent_lists.list_agents(made.there.people, "gitops-ds", now, scope=EVERY)
    assert tables.agents_table(agents, now, wide=True) == tables.agents_table(whole, now, wide=True)
    return client


async def edited(made: Scene, change: Callable[[dict[str, Any]], None]) -> None:
    """Writes the record of the agent with a change."""
    (record,) = [
        body for body in await made.objects() if status_writer.OF in body["metadata"]["labels"]
    ]
    status = json.loads(record["data"]["status.json"])
    change(status)
    data = {"data": {"status.json": json.dumps(status)}}
    name = record["metadata"]["name"]
    await made.there.people.patch(CONFIG_MAP, "gitops-ds", name, data)


async def annotated(made: Scene, **annotations: str) -> None:
    body: Body = {"metadata": {"annotations": annotations}}
    await made.there.people.patch(DAEMONSET, KEY.namespace, KEY.name, body)


async def a_failing_template(made: Scene) -> None:
    await made.there.edit("bad")
    await asyncio.sleep(30)


async def another_template(made: Scene) -> None:
    await made.there.edit("agent:3")


async def a_deleted_pod(made: Scene) -> None:
    made.there.cluster.kill_node("node-0")
    await asyncio.sleep(120)


async def a_service_that_was_killed(made: Scene) -> None:
    await follow(made, written=virtual_time.clock()() - FRESH - 1)


async def a_service_that_ended(made: Scene) -> None:
    await follow(made, active=False)


async def a_suspension(made: Scene) -> None:
    await annotated(made, **{names.SUSPEND: "true"})


async def another_commit(made: Scene) -> None:
    await annotated(made, **{names.COMMIT: "b" * 40})


async def a_record_of_an_earlier_daemonset(made: Scene) -> None:
    await edited(made, lambda status: status["daemonSet"].update(uid="earlier"))


async def a_record_of_an_earlier_version(made: Scene) -> None:
    await edited(made, lambda status: status["daemonSet"].pop("uid"))


async def a_record_without_counters(made: Scene) -> None:
    await edited(made, lambda status: status.pop("counts"))


async def other_counters(made: Scene) -> None:
    await edited(made, lambda status: status["counts"].update(ready=2))


async def a_message_that_was_cut(made: Scene) -> None:
    await edited(made, lambda status: status["conditions"][0].update(message="x" * 1024))


async def an_unknown_health(made: Scene) -> None:
    await edited(made, lambda status: status.update(health="Splendid"))


async def a_recorded_progress(made: Scene) -> None:
    await edited(made, lambda status: status.update(health="Progressing"))


async def a_record_of_another_owner(made: Scene) -> None:
    key = status_writer.name_of(KEY)
    labels = {"metadata": {"labels": {status_writer.OF: "other"}}}
    await made.there.people.patch(CONFIG_MAP, "gitops-ds", key, labels)


async def no_conditions(made: Scene) -> None:
    await edited(made, lambda status: status.update(conditions=[]))


async def nothing(_: Scene) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "health"),
    [(nothing, "Healthy"), (a_failing_template, "Failed"), (a_deleted_pod, "Degraded")],
)
async def test_an_agent_at_rest_is_read_without_nodes_and_pods(
    change: Callable[[Scene], Awaitable[None]], health: str
) -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(60)
        await change(made)
        await asyncio.sleep(30)
        assert (await made.status())["health"] == health
        await follow(made)
        client = await compared(made)
        assert not client.pods
        assert not client.nodes


@pytest.mark.parametrize(("pods", "is_listed"), [(3, False), (4, True), (None, True)])
async def test_fewer_pods_are_listed_beside_a_record_too(pods: int | None, is_listed: bool) -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(60)
        await follow(made)
        client = await compared(made, AgentScope(recorded_from=pods))
        assert bool(client.pods) is is_listed


@pytest.mark.parametrize(
    "change",
    [
        a_failing_template,
        another_template,
        a_deleted_pod,
        a_service_that_was_killed,
        a_service_that_ended,
        a_suspension,
        another_commit,
        a_record_of_an_earlier_daemonset,
        a_record_of_an_earlier_version,
        an_unknown_health,
        no_conditions,
        a_recorded_progress,
        a_record_without_counters,
        other_counters,
        a_message_that_was_cut,
        a_record_of_another_owner,
    ],
)
async def test_a_record_that_is_not_the_present_one_does_not_count(
    change: Callable[[Scene], Awaitable[None]],
) -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(60)
        await follow(made)
        for task in made.tasks:
            task.cancel()
        await change(made)
        client = await compared(made)
        assert client.pods
        assert client.nodes
