"""The ConfigMap with the status of each agent: right, written only on change, and gone with the
agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NAMESPACE, CommitId, short
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.status import status_writer
from gitops_ds.status.status_writer import StatusWriter
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator import virtual_time
from tests.simulator.setup import KEY, Setup, daemonset, set_up
from tests.status.tracked import tracked

COMMIT = CommitId("a" * 40)
GOOD = DeployerState(last_good=COMMIT, last_attempted=COMMIT, inventory=frozenset({KEY}))


@dataclass
class Scene:
    there: Setup
    states: dict[str, DeployerState]
    writer: simulator.Client
    tracker: StatusTracker
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self) -> None:
        writing = StatusWriter(
            self.writer, "gitops-ds", self.tracker, lambda: self.states, virtual_time.clock()
        )
        self.tasks.append(asyncio.create_task(writing.run()))

    def remember(self, **states: DeployerState) -> None:
        self.states.update(states)
        self.tracker.handle(Reconciled(0.0, None, 0, ()))

    async def objects(self) -> list[dict[str, Any]]:
        items = (await self.there.people.list(CONFIG_MAP)).items
        return [dict(body) for body in items if body["metadata"]["namespace"] == "gitops-ds"]

    async def uid(self) -> str:
        return str(
            (await self.there.people.get(DAEMONSET, KEY.namespace, KEY.name))["metadata"]["uid"]
        )

    async def status(self) -> dict[str, Any]:
        (body,) = await self.objects()
        return dict(json.loads(body["data"]["status.json"]))


def followed(states: dict[str, DeployerState]) -> dict[str, SourceStatus]:
    def one(id: str, state: DeployerState) -> SourceStatus:
        whole = state.last_good == state.last_attempted
        condition = Condition.SYNCED if whole else Condition.PARTLY_APPLIED
        return SourceStatus(
            id,
            condition=condition,
            message=f"commit {short(state.last_attempted)} is applied in part",
        )

    return {id: one(id, state) for id, state in states.items()}


@contextlib.asynccontextmanager
async def scene(
    faults: simulator_faults.Faults = simulator_faults.none,
) -> AsyncIterator[Scene]:
    body = daemonset()
    metadata = {
        **body["metadata"],
        "labels": {names.OWNER_LABEL: "fleet"},
        "annotations": {names.COMMIT: COMMIT},
    }
    async with set_up(3, {**body, "metadata": metadata}) as there:
        await there.people.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}}
        )
        states: dict[str, DeployerState] = {}
        sources = functools.partial(followed, states)
        async with tracked(there, states=lambda: states, sources=sources) as tracker:
            made = Scene(there, states, there.cluster.client(faults=faults), tracker)
            made.begin()
            yield made
            for task in made.tasks:
                task.cancel()


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in status["conditions"]
    }


async def test_the_status_object_has_the_status_of_the_agent_and_follows_it() -> None:
    async with scene() as made:
        await asyncio.sleep(30)
        assert await made.objects() == []  # the owner of the agent is not known yet
        made.remember(fleet=GOOD)
        await asyncio.sleep(10)
        status = await made.status()
        assert conditions(status) == {"Ready": ("True", "ReconciliationSucceeded")}
        expected = {name: status[name] for name in ("health", "commit", "revision", "sync")}
        assert expected == {
            "health": "Healthy",
            "commit": COMMIT,
            "revision": 1,
            "sync": "Synced",
        }
        assert status["nodes"]["updated"] == 3
        assert status["daemonSet"] == {
            "namespace": "default",
            "name": "agent",
            "uid": await made.uid(),
            "generation": 1,
            "observedGeneration": 1,
        }
        await made.there.edit("bad")
        await asyncio.sleep(20)
        status = await made.status()
        assert conditions(status) == {
            "Ready": ("False", "HealthCheckFailed"),
            "Stalled": ("True", "HealthCheckFailed"),
        }
        assert (status["nodes"]["templateFault"], status["nodes"]["old"]) == (1, 2)
        await made.there.edit("agent:3")
        await asyncio.sleep(4)
        assert conditions(await made.status())["Reconciling"] == ("True", "Progressing")
        await asyncio.sleep(30)
        assert conditions(await made.status()) == {"Ready": ("True", "ReconciliationSucceeded")}


async def test_nothing_is_written_while_nothing_changes_nor_after_a_restart() -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(60)
        made.writer.count.reset()
        await asyncio.sleep(3600)
        made.tasks.pop().cancel()
        made.begin()
        await asyncio.sleep(60)
        assert made.writer.count.writes == 0


async def test_a_rollout_writes_it_every_few_seconds_at_most() -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(60)
        made.writer.count.reset()
        for number in range(30):
            await made.there.edit(f"agent:{number}")
            await asyncio.sleep(1)
        assert 0 < made.writer.count.writes <= 30 / status_writer.EVERY + 1


async def test_the_status_object_is_deleted_with_the_agent_also_after_a_restart() -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(30)
        assert len(await made.objects()) == 1
        made.tasks.pop().cancel()
        made.states["fleet"] = DeployerState()
        await made.there.people.delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(30)
        assert len(await made.objects()) == 1
        made.begin()
        made.remember()
        await asyncio.sleep(status_writer.OWNERS + 5)
        assert await made.objects() == []


async def test_a_missing_agent_is_reported_until_it_is_no_longer_desired() -> None:
    async with scene() as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(30)
        await made.there.people.delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(10)
        status = await made.status()
        assert (status["health"], conditions(status)["Ready"]) == (
            "Missing",
            ("False", "Missing"),
        )
        made.remember(fleet=DeployerState())
        await asyncio.sleep(10)
        assert await made.objects() == []


async def test_a_commit_that_is_not_applied_as_a_whole_is_not_ready() -> None:
    async with scene() as made:
        made.remember(
            fleet=DeployerState(
                last_good=COMMIT, last_attempted=CommitId("b" * 40), inventory=frozenset({KEY})
            )
        )
        await asyncio.sleep(30)
        (body,) = await made.objects()
        assert conditions(await made.status())["Ready"] == ("False", "ReconciliationFailed")
        assert body["data"]["ready"] == "False"
        assert "bbbbbbbbbbbb" in body["data"]["message"]


async def test_an_api_server_that_refuses_is_tried_again() -> None:
    refusing = [True]

    def refuse(request: simulator_faults.SimulatedRequest) -> simulator_faults.RequestFault | None:
        return simulator_faults.failure(500) if refusing[0] else None

    async with scene(refuse) as made:
        made.remember(fleet=GOOD)
        await asyncio.sleep(100)
        refusing[0] = False
        await asyncio.sleep(status_writer.RETRY + 5)
        assert (await made.status())["health"] == "Healthy"
