"""Nodes that join with a startup taint, on the simulated cluster in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from gitops_ds.controller.controller import Controller
from gitops_ds.core import names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.events import base
from gitops_ds.core.events.startup_taints import (
    NodeWaitsForAgents,
    StartupTaintAdded,
    StartupTaintFailed,
    StartupTaintsRemoved,
)
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Body, Resource
from gitops_ds.core.required_in_git import RequiredInGit
from gitops_ds.core.startup_taints import OWN, Enforce, StartupTaintPolicy
from gitops_ds.kube.apimachinery import nodes, pods
from gitops_ds.rollouts.state import keys
from gitops_ds.startup_taints.startup_taints import GitInputs
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults, virtual_time
from tests.simulator.setup import Setup, daemonset, named, set_up
from tests.startup_taints.plain import in_git

CILIUM = Taint("node.cilium.io/agent-not-ready", "NoSchedule")
POLICY = StartupTaintPolicy(others=(CILIUM,))
CONTINUOUS = StartupTaintPolicy(enforce=Enforce.CONTINUOUS, share=0.2)


def required(image: str = "agent:1", name: str = "agent", **spec: Any) -> dict[str, Any]:
    body = daemonset(image, **spec)
    body["metadata"] |= {"name": name, "annotations": {names.REQUIRED_FOR_WORK: "true"}}
    body["spec"]["selector"] = {"matchLabels": {"app": name}}
    body["spec"]["template"]["metadata"] = {"labels": {"app": name}}
    body["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    return body


def workload(name: str) -> dict[str, Any]:
    containers = [{"name": "web", "image": "web:1"}]
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
    }


def joining(numbers: range, *taints: Taint) -> list[simulator.NodeSpec]:
    return named(numbers, taints=taints or (OWN,))


@contextlib.asynccontextmanager
async def cluster(
    joined: int = 3, body: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Setup]:
    async with set_up(joining(range(joined)), body or required(), **options) as there:
        yield there


def begin(
    there: Setup,
    policy: StartupTaintPolicy = POLICY,
    powers: Powers = Powers.FULL,
    client: simulator.Client | None = None,
    applied: Callable[[], bool] = lambda: True,
    wanted: Callable[[], Sequence[Body]] | None = None,
    required: Callable[[], Sequence[RequiredInGit]] | None = None,
) -> Controller:
    """A controller. Git requires `wanted`, all of which were applied; by default the DaemonSet of
    the cluster.
    """

    def by_manifests() -> Sequence[RequiredInGit]:
        return [in_git(body) for body in (wanted() if wanted is not None else [there.body])]

    inputs = GitInputs(applied, required or by_manifests)
    return there.begin(
        powers,
        client,
        prepare=lambda controller: controller.startup_taints.enable(policy, inputs),
    )


async def taints(there: Setup) -> dict[str, tuple[Taint, ...]]:
    listed = map(nodes.node_of, (await there.people.list(NODE)).items)
    return {one.name: one.taints for one in listed}


def events(there: Setup, kind: type[base.Event]) -> list[Any]:
    return [record for record in there.records if isinstance(record, kind)]


def patches(client: simulator.Client) -> int:
    return client.count.of("patch", "nodes")


def refuse_patches(request: faults.SimulatedRequest) -> faults.RequestFault | None:
    is_patch = request.verb == "patch" and request.resource == NODE
    return faults.failure(403) if is_patch else None


async def test_a_node_gets_work_when_its_agent_is_ready_and_not_before() -> None:
    async with cluster(1) as there:
        await there.people.create(POD, workload("web"))
        begin(there)
        await asyncio.sleep(2.5)
        web = pods.pod_of(await there.people.get(POD, "default", "web"))
        assert web.node == ""
        await asyncio.sleep(2)
        assert await taints(there) == {"node-0": ()}
        web = pods.pod_of(await there.people.get(POD, "default", "web"))
        assert web.node == "node-0"
        (event,) = events(there, StartupTaintsRemoved)
        assert event.taints == (OWN,)


async def test_each_node_costs_one_patch() -> None:
    async with cluster(20) as there:
        begin(there)
        await asyncio.sleep(60)
        assert set((await taints(there)).values()) == {()}
        assert patches(there.cluster) == 20


async def test_without_the_taint_nothing_is_written_to_nodes() -> None:
    async with set_up(3, required()) as there:
        begin(there)
        await asyncio.sleep(60)
        assert patches(there.cluster) == 0


async def test_the_taints_of_others_are_removed_together_and_foreign_ones_stay() -> None:
    foreign = Taint("example.com/foreign", "NoSchedule")
    async with set_up(joining(range(1), CILIUM, foreign, OWN), required()) as there:
        begin(there)
        await asyncio.sleep(20)
        assert await taints(there) == {"node-0": (foreign,)}


@pytest.mark.parametrize("powers", [Powers.OBSERVE, Powers.PACE])
async def test_the_powers_decide_whether_taints_are_removed(powers: Powers) -> None:
    async with cluster(2) as there:
        there.begin(Powers.FULL, there.people)
        begin(there, powers=powers)
        await asyncio.sleep(20)
        removed = set((await taints(there)).values()) == {()}
        assert removed is (powers is Powers.PACE)


async def test_a_node_that_waits_for_long_is_reported_once_with_the_cause() -> None:
    async with cluster(2, required("bad")) as there:
        controller = begin(there)
        await asyncio.sleep(299)
        assert events(there, NodeWaitsForAgents) == []
        await asyncio.sleep(1000)
        reported = events(there, NodeWaitsForAgents)
        assert sorted(one.node for one in reported) == ["node-0", "node-1"]
        assert "ErrImagePull" in reported[0].text() or "ImagePullBackOff" in reported[0].text()
        assert controller.startup_taints.counts() == {"starting": 0, "late": 2}
        assert set((await taints(there)).values()) == {(OWN,)}


async def test_bootstrap_never_adds_the_taint_again() -> None:
    async with cluster(3) as there:
        begin(there)
        await asyncio.sleep(20)
        await there.edit("bad")
        await asyncio.sleep(1000)
        assert set((await taints(there)).values()) == {()}


@pytest.mark.parametrize("life", [0.03, 1.0, 2.9, 3.03, 3.06])
async def test_killed_at_any_instant_the_next_one_continues_from_lists(life: float) -> None:
    async with cluster(6, latency=0.01) as there:
        begin(there)
        await asyncio.sleep(life)
        await there.kill()
        begin(there)
        await asyncio.sleep(20)
        assert set((await taints(there)).values()) == {()}
        assert patches(there.cluster) <= 12


async def test_two_services_and_another_tool_remove_the_same_taints_without_harm() -> None:
    specs = joining(range(10), OWN, CILIUM)
    async with set_up(specs, required(), latency=0.01) as there:
        one, other = there.cluster.client("one"), there.cluster.client("other")
        begin(there, client=one)
        begin(there, powers=Powers.PACE, client=other)

        async def operator() -> None:
            """Cilium's operator: writes the list of taints without its own."""
            await asyncio.sleep(3)
            for name, found in (await taints(there)).items():
                left = [{"key": t.key, "effect": t.effect} for t in found if t != CILIUM]
                await there.people.patch(
                    NODE, "", name, {"spec": {"taints": left}}, type=PatchType.MERGE
                )

        await operator()
        await asyncio.sleep(20)
        assert set((await taints(there)).values()) == {()}
        assert max(patches(one), patches(other)) <= 3 * 10


async def test_a_node_of_the_same_name_waits_for_its_own_agent() -> None:
    slow = simulator.Behaviour(pull=20)
    async with cluster(1, behaviour=slow) as there:
        begin(there)
        await asyncio.sleep(30)
        assert await taints(there) == {"node-0": ()}
        there.cluster.remove_node("node-0")
        await asyncio.sleep(5)
        there.cluster.add_nodes(joining(range(1)))
        await asyncio.sleep(2)
        assert await taints(there) == {"node-0": (OWN,)}
        await asyncio.sleep(200)
        assert await taints(there) == {"node-0": ()}


async def test_before_the_first_apply_no_node_gets_work() -> None:
    applied = False
    async with cluster(2) as there:
        begin(there, applied=lambda: applied)
        await asyncio.sleep(60)
        assert set((await taints(there)).values()) == {(OWN,)}
        applied = True
        await asyncio.sleep(2)
        assert set((await taints(there)).values()) == {()}


async def test_an_agent_in_git_that_is_not_applied_yet_is_waited_for() -> None:
    second = required(name="second")
    wanted = [required(), second]
    async with cluster(2) as there:
        begin(there, wanted=lambda: wanted)
        await asyncio.sleep(60)
        assert set((await taints(there)).values()) == {(OWN,)}
        await there.people.create(DAEMONSET, second)
        await asyncio.sleep(20)
        assert set((await taints(there)).values()) == {()}


async def test_nodes_that_waited_for_the_first_apply_wait_for_the_rest_of_it() -> None:
    applied = False
    second = required(name="second")
    wanted = [required(), second]
    async with cluster(2) as there:
        begin(there, applied=lambda: applied, wanted=lambda: wanted)
        await asyncio.sleep(1000)
        applied = True
        await asyncio.sleep(200)
        assert set((await taints(there)).values()) == {(OWN,)}
        await there.people.create(DAEMONSET, second)
        await asyncio.sleep(20)
        assert set((await taints(there)).values()) == {()}


async def test_an_agent_that_does_not_fit_is_given_up_after_the_stated_time() -> None:
    body = required()
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "99"}}
    async with cluster(1, body) as there:
        begin(there)
        await asyncio.sleep(290)
        assert await taints(there) == {"node-0": (OWN,)}
        await asyncio.sleep(20)
        assert await taints(there) == {"node-0": ()}
        (event,) = events(there, StartupTaintsRemoved)
        assert event.level == "warning"
        assert "Unschedulable" in event.text()


async def test_an_agent_that_git_no_longer_requires_is_no_longer_waited_for() -> None:
    wanted = [required("bad")]
    async with cluster(1, required("bad")) as there:
        begin(there, wanted=lambda: wanted)
        await asyncio.sleep(20)
        assert await taints(there) == {"node-0": (OWN,)}
        wanted.clear()
        await label(there, "node-0")
        await asyncio.sleep(1)
        assert await taints(there) == {"node-0": ()}


async def test_a_refused_patch_is_repeated_less_and_less_often_and_reported_once() -> None:
    async with cluster(1) as there:
        there.cluster.faults = refuse_patches
        begin(there)
        await asyncio.sleep(600)
        assert 5 <= patches(there.cluster) <= 20
        assert len(events(there, StartupTaintFailed)) == 1
        there.cluster.faults = faults.none
        await asyncio.sleep(61)
        assert await taints(there) == {"node-0": ()}


async def test_only_the_leader_writes() -> None:
    async with cluster(3) as there:
        controller = begin(there)
        there.begin(Powers.FULL, there.people)
        leadership = Leadership(leads=False)
        controller.follow(leadership)
        await asyncio.sleep(20)
        assert set((await taints(there)).values()) == {(OWN,)}
        leadership.change(True)
        await asyncio.sleep(1)
        assert set((await taints(there)).values()) == {()}


async def test_continuous_taints_a_node_whose_agent_is_lost_and_releases_it_again() -> None:
    async with cluster(10) as there:
        begin(there, CONTINUOUS)
        await asyncio.sleep(20)
        flaw = simulator.PodFault("agent:1", simulator.Trouble.CRASHES, "node-3")
        there.cluster.kubelets.behaviour = simulator.Behaviour(faults=(flaw,))
        for body in (await there.people.list(POD)).items:
            if pods.pod_of(body).node == "node-3":
                await there.people.delete(POD, "default", body["metadata"]["name"])
        await asyncio.sleep(110)
        assert set((await taints(there)).values()) == {()}
        await asyncio.sleep(30)
        assert [name for name, found in (await taints(there)).items() if found] == ["node-3"]
        assert len(events(there, StartupTaintAdded)) == 1
        there.cluster.kubelets.behaviour = simulator.Behaviour()
        await asyncio.sleep(400)
        assert set((await taints(there)).values()) == {()}


async def test_continuous_adds_no_taint_for_a_fault_of_the_template() -> None:
    body = required(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    )
    async with cluster(10, body) as there:
        begin(there, CONTINUOUS)
        await asyncio.sleep(20)
        await there.edit("bad")
        await asyncio.sleep(1000)
        assert set((await taints(there)).values()) == {()}
        assert events(there, StartupTaintAdded) == []


async def test_a_node_that_returns_after_an_outage_gets_no_taint() -> None:
    async with cluster(10) as there:
        begin(there, CONTINUOUS)
        await asyncio.sleep(20)
        there.cluster.kill_node("node-3")
        await asyncio.sleep(280)
        there.cluster.revive_node("node-3")
        await asyncio.sleep(60)
        assert events(there, StartupTaintAdded) == []
        assert set((await taints(there)).values()) == {()}


async def test_a_refusal_of_all_nodes_is_reported_once_and_tried_with_one_of_them() -> None:
    async with cluster(200) as there:
        there.cluster.faults = refuse_patches
        controller = begin(there)
        await asyncio.sleep(600)
        assert len(events(there, StartupTaintFailed)) == 1
        assert patches(there.cluster) <= 16 + 20
        waits = controller.startup_taints.waits
        assert len(waits) == 200
        assert all("its taints are not changed" in wait.cause for wait in waits.values())
        there.cluster.faults = faults.none
        await asyncio.sleep(61)
        assert set((await taints(there)).values()) == {()}


async def test_a_refusal_of_some_nodes_keeps_no_other_node_waiting() -> None:
    refused = {"node-0", "node-1", "node-7"}

    def refuse_some(request: faults.SimulatedRequest) -> faults.RequestFault | None:
        return refuse_patches(request) if request.name in refused else None

    async with cluster(20) as there:
        there.cluster.faults = refuse_some
        begin(there)
        await asyncio.sleep(30)
        assert {name for name, left in (await taints(there)).items() if left} == refused


async def test_the_clock_of_the_waits_is_that_of_the_cluster() -> None:
    async with cluster(1, required("bad")) as there:
        controller = begin(there)
        await asyncio.sleep(10)
        (wait,) = controller.startup_taints.waits.values()
        assert virtual_time.clock()() - wait.since == pytest.approx(10, abs=1)


async def test_an_agent_that_is_deleted_manually_is_waited_for_until_it_is_created_again() -> None:
    async with cluster(1) as there:
        wanted = [required()]
        begin(there, wanted=lambda: wanted)
        there.begin(Powers.FULL, there.people)
        kept = {"metadata": {"finalizers": ["example.com/kept"]}}
        await there.people.patch(DAEMONSET, "default", "agent", kept, type=PatchType.MERGE)
        await there.people.delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(1000)
        assert await taints(there) == {"node-0": (OWN,)}
        wanted = []
        await label(there, "node-0")
        await asyncio.sleep(1)
        assert await taints(there) == {"node-0": ()}


async def label(there: Setup, node: str) -> None:
    """A change of a node, after which the service looks at it."""
    change = {"metadata": {"labels": {"a": "b"}}}
    await there.people.patch(NODE, "", node, change, type=PatchType.MERGE)


def in_template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def annotated(name: str, text: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: text}}}


NOWHERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "no", "operator": "Exists"}]}]}
REQUIRED_NODES = "requiredDuringSchedulingIgnoredDuringExecution"
# What a person who may only write DaemonSets can write to one, as merge patches.
EDITS: dict[str, dict[str, Any]] = {
    "node selector": in_template(nodeSelector={"no": "where"}),
    "node name": in_template(nodeName="elsewhere"),
    "affinity": in_template(affinity={"nodeAffinity": {REQUIRED_NODES: NOWHERE}}),
    "tolerations": in_template(tolerations=[]),
    "image": in_template(containers=[{"name": "agent", "image": "pause:3"}]),
    "command": in_template(containers=[{"name": "agent", "image": "bad", "command": ["true"]}]),
    "another container": in_template(containers=[{"name": "x", "image": "pause:3"}]),
    "no room": in_template(
        containers=[{"name": "agent", "image": "bad", "resources": {"requests": {"cpu": "99"}}}]
    ),
    "minReadySeconds": {"spec": {"minReadySeconds": 0}},
    "no annotation": annotated(names.REQUIRED_FOR_WORK, None),
    "suspended": annotated(names.SUSPEND, "true"),
    "a policy": annotated(keys.ROLLOUT_POLICY, "{}"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_no_edit_of_a_daemonset_gives_a_node_work(edit: dict[str, Any]) -> None:
    """Not at once, and not after the time that is given to agents which only a person can help."""
    async with cluster(3, required("bad", minReadySeconds=10)) as there:
        begin(there)
        await asyncio.sleep(30)
        await there.people.patch(DAEMONSET, "default", "agent", edit, type=PatchType.MERGE)
        await asyncio.sleep(20)
        for body in (await there.people.list(POD)).items:
            await there.people.delete(POD, "default", body["metadata"]["name"])
        await asyncio.sleep(1000)
        assert set((await taints(there)).values()) == {(OWN,)}


async def test_a_daemonset_that_is_not_in_git_keeps_no_node_from_work() -> None:
    async with cluster(2) as there:
        begin(there)
        await there.people.create(DAEMONSET, required("bad", "mine"))
        await asyncio.sleep(20)
        assert set((await taints(there)).values()) == {()}


@pytest.mark.parametrize("image", ["pause:3", "bad"])
async def test_a_pod_that_another_client_made_is_the_agent_only_if_it_runs_it(image: str) -> None:
    """With the owner, the labels and the node of the deleted pod."""
    slow = simulator.Behaviour(faults=(simulator.PodFault("bad", simulator.Trouble.CRASHES),))
    async with cluster(1, required("bad"), behaviour=slow) as there:
        begin(there, powers=Powers.PACE)
        await there.kill()
        there.begin(Powers.FULL, there.people)
        await asyncio.sleep(20)
        await there.kill()
        begin(there, powers=Powers.PACE)
        (real,) = (await there.people.list(POD)).items
        metadata = {
            name: real["metadata"][name] for name in ("labels", "namespace", "ownerReferences")
        }
        await there.people.delete(POD, "default", real["metadata"]["name"])
        await asyncio.sleep(40)
        there.cluster.kubelets.behaviour = simulator.Behaviour()
        containers = [{"name": "agent", "image": image}]
        spec = {"nodeName": "node-0", "containers": containers}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": "fake"}}
        await there.people.create(POD, {**body, "spec": spec})
        await asyncio.sleep(400)
        fake = pods.pod_of(await there.people.get(POD, "default", "fake"))
        assert fake.ready
        assert await taints(there) == {"node-0": () if image == "bad" else (OWN,)}


@pytest.mark.parametrize("cause", ["not permitted", "not applied", "observes"])
async def test_a_node_that_keeps_its_taint_with_ready_agents_is_reported_too(cause: str) -> None:
    applied, powers = cause != "not applied", Powers.FULL
    async with cluster(1) as there:
        if cause == "not permitted":
            there.cluster.faults = refuse_patches
        if cause == "observes":
            powers = Powers.OBSERVE
            there.begin(Powers.FULL, there.people)
        controller = begin(there, powers=powers, applied=lambda: applied)
        await asyncio.sleep(299)
        assert events(there, NodeWaitsForAgents) == []
        assert controller.startup_taints.counts() == {"starting": 1, "late": 0}
        await asyncio.sleep(70)
        (event,) = events(there, NodeWaitsForAgents)
        expected = {"not permitted": "not changed: ", "not applied": "is read and applied"}
        assert expected.get(cause, "observes") in event.text()
        assert controller.startup_taints.counts() == {"starting": 0, "late": 1}
        applied, there.cluster.faults = True, faults.none
        await asyncio.sleep(61)
        released = cause != "observes"
        assert await taints(there) == {"node-0": () if released else (OWN,)}
        assert len(controller.startup_taints.waits) == int(not released)


class Reverted(simulator.Client):
    """An admission webhook reverts each patch of a node, so that nothing changes."""

    async def patch(self, resource: Resource, namespace: str, name: str, *_: Any, **__: Any) -> Any:
        return await self.get(resource, namespace, name)


async def test_a_patch_that_a_webhook_reverts_is_not_a_removal() -> None:
    async with cluster(1) as there:
        there.begin(Powers.FULL, there.people)
        client = Reverted(there.cluster.server, "service", there.cluster.habits, faults.none)
        controller = begin(there, powers=Powers.PACE, client=client)
        await asyncio.sleep(600)
        assert events(there, StartupTaintsRemoved) == []
        assert len(events(there, StartupTaintFailed)) == 1
        (wait,) = controller.startup_taints.waits.values()
        assert "webhook" in wait.text
        assert len(events(there, NodeWaitsForAgents)) == 1


async def test_two_clients_that_disagree_about_a_taint_do_not_patch_without_end() -> None:
    async with cluster(1) as there:
        controller = begin(there, client=there.cluster.client("service"))
        own = [{"key": OWN.key, "effect": OWN.effect}]

        async def insist() -> None:
            while True:
                await asyncio.sleep(0.1)
                if await taints(there) == {"node-0": ()}:
                    body = {"spec": {"taints": own}}
                    await there.people.patch(NODE, "", "node-0", body, type=PatchType.MERGE)

        stubborn = asyncio.create_task(insist())
        await asyncio.sleep(1000)
        stubborn.cancel()
        assert len(events(there, StartupTaintsRemoved)) <= 25
        (wait,) = controller.startup_taints.waits.values()
        assert "another client" in wait.text
        assert len(events(there, NodeWaitsForAgents)) >= 1
        await asyncio.sleep(61)
        assert await taints(there) == {"node-0": ()}


async def test_a_new_leader_reports_the_waits_that_it_saw_before() -> None:
    async with cluster(1, required("bad")) as there:
        controller = begin(there)
        there.begin(Powers.FULL, there.people)
        leadership = Leadership(leads=False)
        controller.follow(leadership)
        await asyncio.sleep(400)
        assert events(there, NodeWaitsForAgents) == []
        leadership.change(True)
        await asyncio.sleep(1)
        assert len(events(there, NodeWaitsForAgents)) == 1


async def test_the_wait_of_an_old_node_begins_when_it_gets_the_taint_again() -> None:
    body = required("bad")
    async with set_up(1, body) as there:
        begin(there)
        await asyncio.sleep(5000)
        own = {"spec": {"taints": [{"key": OWN.key, "effect": OWN.effect}]}}
        await there.people.patch(NODE, "", "node-0", own, type=PatchType.MERGE)
        await asyncio.sleep(290)
        assert events(there, NodeWaitsForAgents) == []
        await asyncio.sleep(20)
        (event,) = events(there, NodeWaitsForAgents)
        assert "no work for 300 s" in event.text()
