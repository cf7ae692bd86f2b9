"""The controller acts on nodes as the plan predicts, also after a node changed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops_ds.controller.controller import Controller
from gitops_ds.core.change import Operation
from gitops_ds.core.decision import Powers
from gitops_ds.core.live import NodeImpact
from gitops_ds.core.objects import NODE, POD
from gitops_ds.kube.apimachinery import pods
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests import profiles
from tests.daemonset import world as core
from tests.plan.world import World, daemonset

TAINTS = (
    {"key": "a", "effect": "NoSchedule"},
    {"key": "b", "effect": "NoExecute"},
    {"key": "c", "effect": "PreferNoSchedule"},
)
TOLERATIONS = [[], [], [], [{"key": "a", "operator": "Exists"}], [{"operator": "Exists"}]]
SELECTORS: list[dict[str, str]] = [{}, {}, {"disk": "ssd"}]
STRATEGIES = [core.rolling(1), core.rolling("100%"), core.rolling(0, 1), {"type": "OnDelete"}]

clean, tainted = (
    st.just([]),
    st.lists(st.sampled_from(TAINTS), min_size=1, max_size=2, unique_by=str),
)
disk = st.sampled_from(["ssd", "hdd"])
node = st.fixed_dictionaries({"disk": disk, "taints": st.one_of(clean, clean, tainted)})
later = st.fixed_dictionaries({"disk": disk, "taints": st.one_of(clean, tainted, tainted)})
agent = st.fixed_dictionaries(
    {
        "image": st.sampled_from(["agent:1", "agent:2"]),
        "tolerations": st.sampled_from(TOLERATIONS),
        "selector": st.sampled_from(SELECTORS),
        "strategy": st.sampled_from(STRATEGIES),
    }
)

PLAIN = {"image": "agent:1", "tolerations": [], "selector": {}, "strategy": core.rolling(1)}
WELL: dict[str, Any] = {"disk": "ssd", "taints": []}


def manifest(about: dict[str, Any]) -> dict[str, Any]:
    spec = {"tolerations": about["tolerations"], "nodeSelector": about["selector"]}
    body = daemonset(
        image=f"registry.example.com/{about['image']}",
        **{key: value for key, value in spec.items() if value},
    )
    return {**body, "spec": {**body["spec"], "updateStrategy": about["strategy"]}}


async def running(cluster: simulator.SimulatedCluster) -> dict[str, set[str]]:
    """By node, the UIDs of its pods."""
    result: dict[str, set[str]] = {}
    for pod in map(pods.pod_of, (await cluster.list(POD)).items):
        result.setdefault(pod.node, set()).add(pod.uid)
    return result


def moved(before: dict[str, set[str]], after: dict[str, set[str]]) -> NodeImpact:
    both = before.keys() & after.keys()
    return NodeImpact(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        tuple(sorted(name for name in both if not before[name] & after[name])),
    )


async def become(cluster: simulator.SimulatedCluster, name: str, about: dict[str, Any]) -> None:
    patch = {"metadata": {"labels": {"disk": about["disk"]}}, "spec": {"taints": about["taints"]}}
    await cluster.patch(NODE, "", name, patch)


@settings(max_examples=profiles.examples(60), deadline=None)
@given(old=agent, new=agent, nodes=st.lists(st.tuples(node, later), min_size=1, max_size=6))
@example(
    old=PLAIN,
    new={**PLAIN, "image": "agent:2"},
    nodes=[(WELL, {**WELL, "taints": [TAINTS[0]]}), (WELL, WELL)],
)
@example(
    old=PLAIN,
    new={**PLAIN, "selector": {"disk": "ssd"}},
    nodes=[(WELL, {**WELL, "taints": [TAINTS[0]]}), (WELL, WELL)],
)
def test_the_plan_names_the_nodes_that_get_lose_and_restart_a_pod(
    old: dict[str, Any], new: dict[str, Any], nodes: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    async def scene() -> None:
        async with simulator.SimulatedCluster() as cluster:
            names = [f"node-{number}" for number in range(len(nodes))]
            cluster.add_nodes(simulator.NodeSpec(name) for name in names)
            for name, (first, _) in zip(names, nodes, strict=True):
                await become(cluster, name, first)
            deployer = World(cluster.client())
            await deployer.apply({"agent.yaml": manifest(old)})
            chance = random.Random(1).random
            controller = Controller(
                cluster, Powers.FULL, lambda _: None, clock=virtual_time.clock(), chance=chance
            )
            task = asyncio.create_task(controller.run())
            await asyncio.sleep(120)
            for name, (_, then) in zip(names, nodes, strict=True):
                await become(cluster, name, then)
            await asyncio.sleep(120)
            before = await running(cluster)
            draft = await deployer.draft({"agent.yaml": manifest(new)}, "second")
            predicted = next(
                (
                    c.nodes
                    for c in draft.plan.changes
                    if c.operation is Operation.UPDATE and c.key.is_daemonset
                ),
                NodeImpact(),
            )
            await deployer.carry_out(draft)
            await asyncio.sleep(600)
            if not draft.plan.refusals:
                assert predicted == moved(before, await running(cluster))
            task.cancel()

    virtual_time.run(scene())
