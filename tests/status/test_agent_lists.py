"""Some agents have the same status as in a list of all, from fewer pods; of pods and nodes no
command requests more than the fields that decisions read.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import EVERYTHING, Listing, Selection
from gitops_ds.core.objects import DAEMONSET, NAMESPACE, NODE, POD, Key, Resource
from gitops_ds.core.rollouts.staged_rollout import HoldKind
from gitops_ds.kube.apimachinery import pods, timestamps
from gitops_ds.status import agent_lists
from gitops_ds.status.agent_lists import EVERY, AgentScope
from gitops_ds.status.agents import Agent
from gitops_ds.testing.simulator import selectors, virtual_time
from tests.rollouts.rollout_world import SECOND
from tests.simulator.setup import Setup, daemonset, set_up
from tests.status.staged_world import FAST, watched
from tests.status.test_shown_holds import Lists, pod

BRIEF = Selection(brief=True)
FULL = "0/6 nodes are available: 1 Insufficient cpu."
SCOPES = (
    *(AgentScope((name,), space) for name in ("agent", "many") for space in ("", "default")),
    AgentScope(("ds/agent", "many")),
    AgentScope((), "other"),
    AgentScope((), "default"),
)


class Recorded:
    """A cluster, and the selections of the lists of pods and nodes."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.pods: list[Selection] = []
        self.nodes: list[Selection] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        if resource in (POD, NODE):
            (self.pods if resource == POD else self.nodes).append(which)
        listing: Listing = await self._cluster.list(resource, which)
        return listing


def bodies() -> Iterator[dict[str, Any]]:
    """DaemonSets: one of the same name in another namespace, one with a selector that a list
    supports in part, one with a bad image, and more of a namespace than have lists of their own.
    """
    yield named("agent", "other", {"matchLabels": {"app": "agent"}})
    several = {"key": "kind", "operator": "In", "values": ["many", "more"]}
    selector = {"matchLabels": {"app": "many"}, "matchExpressions": [several]}
    yield named("many", "default", selector, {"app": "many", "kind": "more"})
    yield named("broken", "other", {"matchLabels": {"app": "b"}}, {"app": "b"}, "agent:bad")
    for number in range(10):
        labels = {"app": f"a-{number}"}
        yield named(f"a-{number}", "default", {"matchLabels": labels}, labels)


def named(
    name: str,
    namespace: str,
    selector: dict[str, Any],
    labels: dict[str, str] | None = None,
    image: str = "agent:1",
) -> dict[str, Any]:
    body = daemonset(image)
    template = body["spec"]["template"]
    if labels:
        template = {**template, "metadata": {"labels": labels}}
    spec = {**body["spec"], "selector": selector, "template": template}
    return {**body, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def many(there: Setup) -> None:
    await there.people.create(NAMESPACE, {"metadata": {"name": "other"}})
    for body in bodies():
        await there.people.create(DAEMONSET, body)
    there.begin()
    await asyncio.sleep(60)


async def test_the_agents_of_a_scope_are_those_of_the_whole_list() -> None:
    async with set_up(3) as there:
        await many(there)
        now = virtual_time.clock()()

        async def listed(scope: AgentScope) -> dict[Key, Agent]:
            client: Any = Recorded(there.people)
            found = await agent_lists.list_agents(client, "gitops-ds", now, scope=scope)
            assert all(which.brief for which in (*client.pods, *client.nodes))
            assert BRIEF not in client.pods or scope == EVERY
            return {agent.key: agent for agent in found}

        whole = await listed(EVERY)
        assert len(whole) == 14
        for scope in SCOPES:
            names = {name.removeprefix("ds/") for name in scope.names}
            keys = {
                key
                for key in whole
                if key.name in (names or {key.name}) and scope.namespace in ("", key.namespace)
            }
            assert await listed(scope) == {key: whole[key] for key in keys}


async def test_a_name_without_an_agent_has_the_nearest_one_and_lists_no_pods() -> None:
    async with set_up(1) as there:
        client: Any = Recorded(there.people)
        with pytest.raises(errors.NoMatch, match='did you mean "agent"'):
            await agent_lists.list_agents(client, "gitops-ds", 0.0, scope=AgentScope(("agnt",)))
        assert not client.pods


class Selecting(Lists):
    """As an API server: a list has the selected objects only."""

    now = 0.0

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        matches = selectors.test(resource, which)
        return Listing(tuple(filter(matches, self.objects.get(resource, ()))), "1")


def rolling(rounds: int = 0, **policy: Any) -> Selecting:
    """A cluster with a staged rollout, after these rounds of the controllers."""
    there = watched({**FAST, **policy})
    there.commit(SECOND)
    there.rounds(rounds)
    made = Selecting(there.world)
    made.now = there.world.now
    return made


def another(made: Selecting, name: str) -> None:
    """Another agent, without pods."""
    body = copy.deepcopy(dict(made.objects[DAEMONSET][0]))
    labels = {"app": name}
    applied = {names.OWNER_LABEL: "fleet"}
    body["metadata"] = {"name": name, "namespace": "default", "uid": name, "labels": applied}
    body["spec"]["selector"] = {"matchLabels": labels}
    body["spec"]["template"]["metadata"] = {"labels": labels}
    made.objects[DAEMONSET].append(body)


def compared(made: Selecting) -> tuple[Agent, Recorded]:
    """The agent of a list by its name, equal to that of a list of all, and the first client."""
    name, client = made.objects[DAEMONSET][0]["metadata"]["name"], Recorded(made)
    readers: list[tuple[Any, AgentScope]] = [(client, AgentScope((name,))), (made, EVERY)]
    read, every = (
        asyncio.run(agent_lists.list_agents(reader, "gitops-ds", made.now, scope=scope))
        for reader, scope in readers
    )
    assert read == tuple(agent for agent in every if agent.key.name == name)
    return read[0], client


def test_during_a_rollout_the_pods_of_its_daemonset_suffice() -> None:
    agent, client = compared(rolling(rounds=3))
    assert agent.rollout is not None
    assert BRIEF not in client.pods


def test_the_pods_of_an_agent_that_a_rollout_waits_for_are_listed_too() -> None:
    made = rolling(after=[{"agent": "cni"}])
    another(made, "cni")
    another(made, "third")
    agent, client = compared(made)
    assert agent.hold is not None
    assert agent.hold.kind is HoldKind.AFTER
    assert [which.labels for which in client.pods] == ["app=agent", "app=cni"]


def test_all_pods_are_listed_for_a_stage_that_waits_for_idle_nodes() -> None:
    canary, rest = FAST["stages"]
    agent, client = compared(rolling(stages=[{**canary, "nodesWhen": "idle"}, rest]))
    assert agent.hold is not None
    assert client.pods == [BRIEF]


def test_all_pods_are_listed_if_others_may_have_the_place_of_a_pod() -> None:
    made = rolling(rounds=3)
    at = timestamps.text(made.now)
    made.now += 3600.0
    scheduled = {"type": "PodScheduled", "lastTransitionTime": at}
    full = {**scheduled, "status": "False", "reason": "Unschedulable", "message": FULL}
    target: Any = max(made.objects[POD], key=lambda body: pods.pod_of(body).created)
    target["spec"].pop("nodeName")
    target["status"] = {"phase": "Pending", "conditions": [full]}
    load: Any = pod("later", pods.pod_of(target).node)
    load["status"]["conditions"] = [{**scheduled, "status": "True"}]
    made.objects[POD].append(load)
    agent, client = compared(made)
    assert agent.rollout is not None
    assert "web/later-" in str(agent.rollout.stages)
    assert client.pods[-1] == BRIEF
