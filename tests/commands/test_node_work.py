"""`gitops-ds get nodes`: the waits of nodes from lists are those of the service."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gitops_ds.cli.get import node_work, tables
from gitops_ds.core.cluster import BRIEF, Selection
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import CONFIG_MAP, Body, CommitId
from gitops_ds.core.startup_taints import OWN, StartupTaintPolicy
from gitops_ds.deploy import state_store
from gitops_ds.startup_taints import required_agents
from gitops_ds.status import agent_lists
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.controller.test_startup_taints import begin, joining, required
from tests.simulator.setup import KEY, Setup, named, set_up
from tests.status.test_agent_lists import Recorded, many

SPACE = "gitops-ds"


async def applied(there: Setup, body: Body) -> None:
    """The state of a service that applied this manifest."""
    required = {KEY: required_agents.record_of(body)}
    state = DeployerState(required=required, last_attempted=CommitId("c1"))
    await state_store.save(there.people, SPACE, "fleet", state)


async def test_the_waits_are_those_of_the_service() -> None:
    body = required("bad")
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
    specs = [
        *named(range(1)),
        *joining(range(1, 2)),
        *(msgspec.structs.replace(one, labels={"pool": "a"}) for one in joining(range(2, 3))),
    ]
    async with set_up(specs, body) as there:
        controller = begin(there)
        await asyncio.sleep(30)
        now = virtual_time.clock()()
        await applied(there, body)
        rows = await node_work.read(there.people, SPACE, StartupTaintPolicy(), now)
        assert [(one.node.name, one.word) for one in rows] == [
            ("node-0", "Yes"),
            ("node-1", "Yes"),
            ("node-2", "Waiting"),
        ]
        assert {one.node.name: one.wait for one in rows if one.wait} == dict(
            controller.startup_taints.waits
        )
        assert node_work.as_json(rows[0]) == {
            "name": "node-0",
            "ready": True,
            "work": "Yes",
            "startupTaints": [],
        }
        document = node_work.as_json(rows[2])
        assert document["startupTaints"] == ["gitops-ds.io/agents-not-ready:NoSchedule"]
        (wait,) = document["waitsFor"]
        assert (wait["namespace"], wait["name"]) == ("default", "agent")
        assert wait["reason"] in ("ErrImagePull", "ImagePullBackOff")
        (agent,) = await agent_lists.list_agents(there.people, "gitops-ds", now, lambda _: None)
        (state,) = (await state_store.load_all(there.people, SPACE)).values()
        (listed,) = node_work.of_agent(agent.seen, state, StartupTaintPolicy())
        assert {**listed, "namespace": "default", "name": "agent"} == {**wait, "node": "node-2"}
        text = tables.nodes(rows, now).splitlines()
        assert text[0].split() == ["NAME", "STATUS", "WORK", "WAITS", "WAITS", "FOR"]
        assert text[1].split() == ["node-0", "Ready", "Yes", "<none>", "<none>"]
        assert text[3].split()[3:5] == ["30s", "default/agent:"]


async def test_a_node_whose_taint_is_about_to_be_removed_is_released() -> None:
    async with set_up(joining(range(1)), required(), simulator.Behaviour()) as there:
        there.begin()
        await asyncio.sleep(30)
        now = virtual_time.clock()()
        await applied(there, there.body)
        (row,) = await node_work.read(there.people, SPACE, StartupTaintPolicy(), now)
        assert (row.word, row.wait) == ("Released", None)


async def test_without_a_state_a_node_is_not_called_released() -> None:
    """The option names another namespace, or the service has applied nothing yet."""
    async with set_up([*named(range(1)), *joining(range(1, 2))], required()) as there:
        now = virtual_time.clock()()
        for space in ("elsewhere", SPACE):
            rows = await node_work.read(there.people, space, StartupTaintPolicy(), now)
            assert [one.word for one in rows] == ["Yes", "Unknown"]
        await state_store.save(there.people, SPACE, "fleet", DeployerState())
        rows = await node_work.read(there.people, SPACE, StartupTaintPolicy(), now)
        assert [one.word for one in rows] == ["Yes", "Unknown"]


async def test_a_node_with_a_taint_that_only_the_service_knows_waits() -> None:
    other = Taint("node.cilium.io/agent-not-ready", "NoExecute")
    specs = [
        msgspec.structs.replace(spec, taints=(*spec.taints, other)) for spec in joining(range(1))
    ]
    body = required()
    body["spec"]["template"]["spec"]["tolerations"] = [{"key": OWN.key, "operator": "Exists"}]
    async with set_up(specs, body) as there:
        there.begin()
        await asyncio.sleep(30)
        now = virtual_time.clock()()
        await applied(there, body)
        limits: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": node_work.LIMITS, "namespace": SPACE},
            "data": {"taint": "gitops-ds.io/agents-not-ready:NoSchedule", "alsoRemove": ""},
        }
        for also, word in (("", "Released"), (f"{other.key}, bad:Effect", "Waiting")):
            limits["data"] = {**limits["data"], "alsoRemove": also}
            await there.people.apply(CONFIG_MAP, limits, manager="kubectl")
            (row,) = await node_work.read(there.people, SPACE, None, now)
            assert (row.word, row.wait is not None) == (word, word == "Waiting")
            assert row.wait is None or "TaintNotTolerated" in row.wait.text


async def test_only_the_pods_of_required_agents_are_requested_and_none_without_a_waiting_node() -> (
    None
):
    async with set_up(named(range(1)), required()) as there:
        await many(there)
        now, client = virtual_time.clock()(), Recorded(there.people)
        reader: Any = client
        await applied(there, there.body)
        await node_work.read(reader, SPACE, StartupTaintPolicy(), now)
        assert (client.pods, client.nodes) == ([], [BRIEF])
        there.cluster.add_nodes(joining(range(1, 2)))
        await node_work.read(reader, SPACE, StartupTaintPolicy(), now)
        assert client.pods == [Selection("default", "app=agent", brief=True)]
