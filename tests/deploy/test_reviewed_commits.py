"""The commits that a rollout brings to an agent that did not get some of them, in virtual time: a
review of the last one alone approves none of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, Body
from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import SimulatedCluster
from tests.plan import world
from tests.plan.world import Files, World, daemonset


def files(tag: int, **agent: bool) -> dict[str, Any]:
    body = daemonset("agent", f"registry.example.com/agent:{tag}")
    return {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "clusters/main.yaml": "environment: production\n",
        "agents/agent/rollout.yaml": "stages: [canary, rest]\n",
        "agents/agent/agent.yaml": agent,
        "agents/agent/agent-ds.json": body,
    }


def without_agent() -> Files:
    names_of_agents = "environment: production\nagents: {other: {}}\n"
    other = {"agents/other/other-ds.json": daemonset("other")}
    return {**files(2), "clusters/main.yaml": names_of_agents, **other}


@pytest.mark.parametrize(
    ("second", "suspend"),
    [
        (files(2), None),
        (files(2, hold=True), None),
        (files(2), "true"),
        (without_agent(), None),
    ],
    ids=["replaced", "on hold", "suspended", "not of the cluster"],
)
def test_a_rollout_brings_each_commit_that_the_agent_did_not_get(
    second: Files, suspend: str | None
) -> None:
    async def scene(there: World, cluster: SimulatedCluster) -> None:
        async def annotate(value: str | None) -> None:
            patch: Body = {"metadata": {"annotations": {names.SUSPEND: value}}}
            await cluster.patch(DAEMONSET, "default", "agent", patch)

        await there.apply(files(1), "first")
        await annotate(suspend)
        await there.apply(second, "second")
        await there.apply(second, "second")
        await annotate(None)
        await there.apply({**files(3), **other_of(second)}, "third")
        since = [
            item["metadata"]["annotations"].get(keys.SINCE)
            for item in (await cluster.list(CONTROLLER_REVISION)).items
        ]
        assert since
        assert set(since) == {world.commit("first").id}

    world.play(scene)


def other_of(second: Files) -> Files:
    return {name: one for name, one in second.items() if name.startswith("agents/other/")}


def test_a_commit_that_the_agent_got_is_not_of_the_next_rollout() -> None:
    async def scene(there: World, cluster: SimulatedCluster) -> None:
        await there.apply(files(1), "first")
        await there.apply(files(2, hold=True), "second")
        await there.apply(files(1), "third")
        await there.apply(files(4), "fourth")
        (target,) = (await cluster.list(CONTROLLER_REVISION)).items
        assert target["metadata"]["annotations"][keys.SINCE] == world.commit("third").id

    world.play(scene)
