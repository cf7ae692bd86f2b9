"""Pods that another controller can't create: the cause is read from its events, which are listed
only while nodes wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import Listing, Selection
from gitops_ds.core.decision import Powers
from gitops_ds.core.health import Blame, HealthState
from gitops_ds.core.objects import DAEMONSET, EVENT, Resource
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.status import agent_healths, agent_json, agent_lists, reporter
from gitops_ds.status.reporter import PodCreateFailureWatcher
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing.simulator import virtual_time
from tests.simulator.setup import Setup, set_up
from tests.status.tracked import tracked

REFUSED = (
    'Error creating: pods "agent-{}" is forbidden: exceeded quota: none, requested: pods=1, used: '
    "pods=0, limited: pods=0"
)


class EventRequests:
    """The requests that a cluster receives: access reviews, and lists of events."""

    def __init__(self, there: Setup, *, allowed: bool = True) -> None:
        self.there, self.allowed, self.listed, self.reviewed = there, allowed, 0, 0

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        assert (verb, resource, namespace) == ("list", EVENT, "")
        self.reviewed += 1
        return self.allowed

    async def list(self, resource: Resource, which: Selection) -> Listing:
        self.listed += 1
        return await self.there.people.list(resource, which)


async def refuse(there: Setup, number: int, uid: str) -> None:
    about = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "namespace": "default",
        "name": "agent",
        "uid": uid,
    }
    now = timestamps.text(virtual_time.clock()())
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": f"agent.{number}"},
    }
    fields = {
        "involvedObject": about,
        "reason": "FailedCreate",
        "type": "Warning",
        "lastTimestamp": now,
    }
    await there.people.create(EVENT, {**body, **fields, "message": REFUSED.format(number)})


@contextlib.asynccontextmanager
async def begun(there: Setup, requests: EventRequests) -> AsyncIterator[tuple[StatusTracker, str]]:
    """The tracker under powers without pods, which gets the failures; the UID of the DaemonSet."""
    async with tracked(there, there.begin(Powers.OBSERVE)) as tracker:
        cluster: Any = requests
        body = await there.people.get(DAEMONSET, "default", "agent")
        taken_up = {"status": {"observedGeneration": body["metadata"]["generation"]}}
        await there.people.patch(DAEMONSET, "default", "agent", taken_up, subresource="status")
        watcher = PodCreateFailureWatcher(cluster, tracker, virtual_time.clock())
        running = asyncio.create_task(watcher.run())
        yield tracker, str(body["metadata"]["uid"])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_quota_is_the_clusters_doing_until_the_event_is_old() -> None:
    async with set_up(2) as there:
        requests = EventRequests(there)
        async with begun(there, requests) as (tracker, uid):
            await asyncio.sleep(30)
            assert tracker.agents()[0].health.state is HealthState.PROGRESSING
            for number in range(2):
                await refuse(there, number, uid)
            await asyncio.sleep(2 * reporter.REFUSALS_EVERY + 2)
            (agent,) = tracker.agents()
            assert agent.health.state is HealthState.DEGRADED
            assert {(node.reason, node.blame) for node in agent.health.nodes} == {
                ("Refused", Blame.CLUSTER)
            }
            assert (
                agent.health.nodes[0].message
                == "pods are forbidden: exceeded quota: none, requested: pods=1, used: pods=0, "
                "limited: pods=0"
            )
            assert agent.health.node_counts.refused == 2
            await asyncio.sleep(agent_healths.STILL + 2 * reporter.REFUSALS_EVERY)
            assert tracker.agents()[0].health.node_counts.refused == 0


async def test_events_are_not_listed_while_no_node_waits() -> None:
    async with set_up(0) as there:
        requests = EventRequests(there)
        async with begun(there, requests):
            await asyncio.sleep(3600)
            assert (requests.listed, requests.reviewed) == (0, 0)


async def test_without_the_right_to_list_events_one_review_is_sent_and_no_list() -> None:
    async with set_up(1) as there:
        requests = EventRequests(there, allowed=False)
        async with begun(there, requests) as (tracker, uid):
            await refuse(there, 1, uid)
            await asyncio.sleep(3600)
            assert (requests.listed, requests.reviewed) == (0, 1)
            assert tracker.agents()[0].health.node_counts.refused == 0


async def test_a_failing_api_server_is_retried() -> None:
    class Failing(EventRequests):
        async def list(self, resource: Resource, which: Selection) -> Listing:
            if self.listed < 3:
                self.listed += 1
                raise errors.ServerFault("away", 503)
            return await super().list(resource, which)

    async with set_up(1) as there, begun(there, Failing(there)) as (tracker, uid):
        await refuse(there, 1, uid)
        await asyncio.sleep(6 * reporter.REFUSALS_EVERY)
        assert tracker.agents()[0].health.node_counts.refused == 1


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"message": REFUSED.format("x")}, "pods are forbidden"),
        (
            {"message": 'admission webhook "policy.example.com" denied the request'},
            'admission webhook "policy.example.com" denied',
        ),
        ({"reason": "SuccessfulCreate"}, ""),
        ({"lastTimestamp": "2026-01-01T00:00:00Z"}, ""),
        ({"lastTimestamp": None, "series": {"lastObservedTime": "2026-03-01T00:00:00.5Z"}}, "no"),
        ({"involvedObject": {"kind": "Job", "uid": "u"}}, ""),
        ({"involvedObject": None, "lastTimestamp": None}, ""),
    ],
)
def test_the_cause_in_an_event(event: dict[str, Any], words: str) -> None:
    about = {"kind": "DaemonSet", "uid": "u"}
    event_body = {
        "reason": "FailedCreate",
        "involvedObject": about,
        "lastTimestamp": "2026-03-01T00:00:00Z",
        "message": "no",
        **event,
    }
    since = timestamps.seconds("2026-02-01T00:00:00Z") or 0.0
    cause = agent_healths.latest_refusals([event_body], since).get("u", "")
    assert (words in cause) == (bool(words) == bool(cause))


async def test_the_command_line_agrees_with_the_service() -> None:
    async with set_up(2) as there, begun(there, EventRequests(there)) as (tracker, uid):
        await refuse(there, 1, uid)
        await asyncio.sleep(3 * reporter.REFUSALS_EVERY)
        [service] = tracker.agents()
        [looked] = await agent_lists.list_agents(there.people, "gitops-ds", virtual_time.clock()())
        assert (looked.health.state, looked.health.message) == (
            service.health.state,
            service.health.message,
        )
        assert looked.health.state is HealthState.DEGRADED
        assert "exceeded quota" in looked.health.message
        assert {entry["reason"] for entry in agent_json.nodes(looked)} == {"Refused"}
