"""The event of a probe or a volume is in the health, of the service and of the commands."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.cluster import EVERYTHING, Listing, Selection
from gitops_ds.core.health import Health
from gitops_ds.core.objects import EVENT, POD, Resource
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.status import agent_healths, agent_lists
from gitops_ds.testing.simulator import Behaviour, Client, PodFault, Trouble, virtual_time
from tests.apimachinery.kubelet_pods import READINESS
from tests.controller.test_pod_warnings import EventServer, unready
from tests.simulator.setup import Setup, set_up
from tests.status.tracked import tracked

NEVER_READY = Behaviour(faults=(PodFault("agent:1", Trouble.NEVER_READY, "node-1"),))
SHOWN = f"Unhealthy: {READINESS['message']}"


async def report_event(there: Setup) -> None:
    """The event of the kubelet about the pod on node-1."""
    [pod] = [
        body
        for body in (await there.people.list(POD)).items
        if body["spec"].get("nodeName") == "node-1"
    ]
    metadata = pod["metadata"]
    about = {"kind": "Pod", **{name: metadata[name] for name in ("namespace", "name", "uid")}}
    event = {
        **READINESS,
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": metadata["namespace"], "name": "agent.1"},
        "involvedObject": about,
        "lastTimestamp": timestamps.text(virtual_time.clock()()),
    }
    await there.people.create(EVENT, event)


def message(health: Health) -> str:
    [node] = health.nodes
    return f"{node.reason}: {node.message}"


class Account:
    """A client whose account may list events, or not."""

    def __init__(self, client: Client, *, may: bool) -> None:
        self._client, self._may = client, may

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        return self._may

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        if resource == EVENT and not self._may:
            raise errors.Forbidden("no", 403, "Forbidden")
        return await self._client.list(resource, which)


async def test_the_service_and_the_commands_show_the_event_of_a_probe() -> None:
    async with set_up(3, behaviour=NEVER_READY) as there:
        client: Any = Account(there.people, may=True)
        async with tracked(there, there.begin(client=client), deadline=60.0) as tracker:
            await asyncio.sleep(5)
            await report_event(there)
            await asyncio.sleep(30)
            [agent] = tracker.agents()
            assert message(agent.health) == f"Starting: {SHOWN}"
            [listed] = await agent_lists.list_agents(
                there.people, "gitops-ds", virtual_time.clock()()
            )
            assert message(listed.health) == f"Starting: {SHOWN}"
            await asyncio.sleep(60)
            [agent] = tracker.agents()
            assert message(agent.health).startswith(SHOWN)
            assert "node-1" in agent.health.message


async def test_a_command_without_permission_to_list_events_shows_the_status() -> None:
    async with set_up(3, behaviour=NEVER_READY) as there:
        await there.begin().observer.synced.wait()
        await asyncio.sleep(700)
        await report_event(there)
        client: Any = Account(there.people, may=False)
        [listed] = await agent_lists.list_agents(client, "gitops-ds", virtual_time.clock()())
        assert message(listed.health) == "NotReady: containers with unready status"


def test_each_of_many_failing_agents_has_its_warning_before_a_second_pod_of_any() -> None:
    number, server, seen = 15, EventServer(), unready(5).observe()
    failing = [
        replace(seen, pods=tuple(replace(pod, uid=f"{agent}-{pod.uid}") for pod in seen.pods))
        for agent in range(number)
    ]
    cluster: Any = server
    asyncio.run(agent_healths.read(cluster, failing, failing, has_nodes=True))
    read = Counter(fields.partition("=")[2].partition("-")[0] for _, fields in server.read)
    assert len(read) == number
    assert read.total() == 40
    assert max(read.values()) <= 3
