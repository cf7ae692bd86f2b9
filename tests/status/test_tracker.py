"""The status of agents is kept current by the watches, and costs nothing while nothing changes."""

from __future__ import annotations

import asyncio
import contextlib

from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState, Generation
from gitops_ds.core.events.agents import HealthChanged, RolloutCompleted, RolloutStarted
from gitops_ds.core.events.base import Decided, Event
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import DAEMONSET, CommitId, Key
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.rollouts.state import proofs
from gitops_ds.status import agents
from gitops_ds.status.tracker import OLDEST_PICTURE, Changes
from tests.simulator.setup import KEY, daemonset, set_up
from tests.status.tracked import tracked

LOST = Key("apps", "DaemonSet", "default", "lost")


async def drain(changes: Changes) -> set[Key]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            return set(await anext(changes))
    return set()


async def test_an_agent_is_listed_from_the_start_follows_every_change_and_is_removed() -> None:
    async with set_up(3) as there, tracked(there) as tracker:
        seen: list[HealthState | None] = []
        await asyncio.sleep(1)
        seen.append(tracker.agents()[0].health.state)
        await asyncio.sleep(15)
        seen.append(tracker.agents()[0].health.state)
        await there.edit("bad")
        await asyncio.sleep(15)
        seen.append(tracker.agents()[0].health.state)
        await there.people.delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(15)
        assert seen == [HealthState.PROGRESSING, HealthState.HEALTHY, HealthState.FAILED]
        assert tracker.agents() == ()


async def test_only_changed_agents_are_evaluated_and_reported() -> None:
    async with set_up(3) as there, tracked(there) as tracker:
        other = daemonset(selector={"matchLabels": {"app": "other"}})
        other["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
        await there.people.create(
            DAEMONSET, {**other, "metadata": {"name": "other", "namespace": "default"}}
        )
        await asyncio.sleep(30)
        before = {agent.key: agent for agent in tracker.agents()}
        changes = tracker.changed()
        assert await drain(changes) == set()
        await there.edit("agent:2")
        await asyncio.sleep(30)
        assert await drain(changes) == {KEY}
        after = {agent.key: agent for agent in tracker.agents()}
        assert {key for key in before if before[key] is not after[key]} == {KEY}


async def test_without_changes_no_agent_is_evaluated_though_nodes_are_listed_again() -> None:
    async with set_up(3) as there, tracked(there) as tracker:
        await asyncio.sleep(30)
        before = tracker.agents()
        await asyncio.sleep(3600)
        # the turns of each new list
        assert sum(isinstance(event, Decided) for event in there.records) > 12
        assert tracker.agents()[0] is before[0]


async def test_a_node_that_dies_is_seen_though_nothing_is_to_be_done() -> None:
    async with set_up(3) as there, tracked(there) as tracker:
        await asyncio.sleep(30)
        there.cluster.kill_node("node-1")
        await asyncio.sleep(65)
        (agent,) = tracker.agents()
        assert (agent.health.state, agent.health.nodes[0].reason) == (
            HealthState.DEGRADED,
            "NodeNotReady",
        )


async def test_an_applied_agent_that_does_not_exist_is_missing_until_it_is_no_longer_desired() -> (
    None
):
    states = {"fleet": DeployerState(inventory=frozenset({LOST}))}
    async with set_up(1) as there, tracked(there, states=lambda: states) as tracker:
        changes = tracker.changed()
        tracker.handle(Reconciled(0.0, None, 0, ()))
        await asyncio.sleep(5)
        assert LOST in await drain(changes)
        assert {agent.key: agent.health.state for agent in tracker.agents()}[
            LOST
        ] is HealthState.MISSING
        states["fleet"] = DeployerState()
        tracker.handle(Reconciled(0.0, None, 0, ()))
        await asyncio.sleep(5)
        assert [agent.key for agent in tracker.agents()] == [KEY]


async def test_a_reconciliation_changes_the_state_of_agents_and_evaluates_none() -> None:
    body = daemonset()
    metadata = {**body["metadata"], "labels": {names.OWNER_LABEL: "fleet"}}
    states, sources = {"fleet": DeployerState()}, {"fleet": SourceStatus("fleet")}
    async with (
        set_up(3, {**body, "metadata": metadata}) as there,
        tracked(there, states=lambda: states, sources=lambda: sources) as tracker,
    ):
        changes = tracker.changed()
        await asyncio.sleep(30)
        await drain(changes)
        (before,) = tracker.agents()
        tracker.handle(Reconciled(0.0, None, 0, ()))
        assert await drain(changes) == set()
        states["fleet"] = DeployerState(last_good=CommitId("a" * 40))
        tracker.handle(Reconciled(0.0, None, 0, ()))
        assert await drain(changes) == {KEY}
        sources["fleet"] = SourceStatus("fleet", condition=Condition.SYNCED)
        tracker.handle(Reconciled(0.0, None, 0, ()))
        assert await drain(changes) == {KEY}
        (after,) = tracker.agents()
        assert after.seen is before.seen
        assert (after.state, after.source) == (states["fleet"], sources["fleet"])


async def test_the_events_of_a_rollout_name_the_commit_that_gave_the_template() -> None:
    first, second = CommitId("a" * 40), CommitId("b" * 40)
    body = daemonset()
    body["metadata"] |= {
        "labels": {names.OWNER_LABEL: "fleet"},
        "annotations": {names.COMMIT: first},
    }
    states, events = {"fleet": DeployerState()}, list[Event]()
    identity = proofs.identity(body["spec"]["template"])

    def compared(generation: int) -> None:
        states["fleet"] = DeployerState(
            inventory=frozenset({KEY}),
            generations={KEY: Generation(generation, first)},
            commits={KEY: {identity: first}},
        )

    async with (
        set_up(3, body) as there,
        tracked(there, states=lambda: states, emit=events.append),
    ):

        async def rollout() -> list[CommitId]:
            await asyncio.sleep(60)
            rollouts = [e for e in events if isinstance(e, RolloutStarted | RolloutCompleted)]
            events.clear()
            return [event.commit for event in rollouts]

        assert await rollout() == [first, first], "the state does not have the apply yet"
        compared(generation=1)
        await there.edit("edited")
        assert await rollout() == ["", ""]
        await there.edit("agent:1")
        assert await rollout() == [first, first], "corrected, and the state does not have it yet"
        await there.edit("kept")
        compared(generation=4)
        assert await rollout() == ["", ""], "an edit that the comparison left"
        metadata = {"annotations": {names.COMMIT: second}}
        await there.people.patch(DAEMONSET, "default", "agent", {"metadata": metadata})
        await there.edit("agent:2")
        assert await rollout() == [second, second]


async def test_the_events_of_a_copy_name_no_commit() -> None:
    body = daemonset()
    body["metadata"]["annotations"] = {names.COMMIT: "a" * 40}
    events = list[Event]()
    async with set_up(3, body) as there, tracked(there, emit=events.append):
        await asyncio.sleep(60)
    found = [event for event in events if isinstance(event, RolloutStarted | HealthChanged)]
    assert found
    assert {event.commit for event in found} == {""}


async def test_on_a_picture_that_is_too_old_no_agent_is_in_sync() -> None:
    body = daemonset()
    metadata = {
        **body["metadata"],
        "labels": {names.OWNER_LABEL: "fleet"},
        "annotations": {names.COMMIT: "a" * 40},
    }
    synced = {"fleet": SourceStatus("fleet", condition=Condition.SYNCED)}
    async with (
        set_up(1, {**body, "metadata": metadata}) as there,
        tracked(there, sources=lambda: synced) as tracker,
    ):
        changes = tracker.changed()
        await asyncio.sleep(30)
        assert agents.sync_of(tracker.agents()[0]) == ("Synced", "")
        await drain(changes)
        tracker.age({"pods": 10.0, "nodes": OLDEST_PICTURE + 1})
        assert await drain(changes) == {KEY}
        assert agents.sync_of(tracker.agents()[0])[0] == "Unknown"
        assert "nodes" in agents.sync_of(tracker.agents()[0])[1]
        tracker.age({"pods": 10.0, "nodes": 5.0})
        assert agents.sync_of(tracker.agents()[0]) == ("Synced", "")
