"""Faults are put into a cluster, and each gets its class: whose fault it is, and what that makes of
the agent's health.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.health import Blame, Health, HealthState
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import DAEMONSET, NODE, POD
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import Behaviour, NodeSpec, Trouble
from gitops_ds.testing.simulator import faults as simulator_faults
from tests.daemonset import world
from tests.simulator.setup import Setup, daemonset, named, set_up
from tests.status.tracked import tracked

DEADLINE = 60.0
NOTICED = 15.0  # seconds within which a fault has its class, once the cluster itself can know of it
AFTERWARDS = 300  # seconds for which it is watched further

Inject = Callable[[Setup], Awaitable[object]]


def image(name: str) -> Inject:
    return lambda there: there.edit(name)


def kill(there: Setup) -> Awaitable[object]:
    there.cluster.kill_node("node-1")
    return asyncio.sleep(0)


def unready(there: Setup) -> Awaitable[object]:
    there.cluster.unready_node("node-1")
    return asyncio.sleep(0)


def remove(there: Setup) -> Awaitable[object]:
    there.cluster.remove_node("node-1")
    return asyncio.sleep(0)


def join(name: str = "new-1", **about: Any) -> Inject:
    def joined(there: Setup) -> Awaitable[object]:
        there.cluster.add_nodes([NodeSpec(name, **about)])
        return asyncio.sleep(0)

    return joined


def node(**spec: Any) -> Inject:
    return lambda there: there.people.patch(NODE, "", "node-1", {"spec": spec})


async def restart(there: Setup) -> None:
    for pod in (await there.people.list(POD)).items:
        if pod["spec"]["nodeName"] == "node-1":
            await there.people.delete(POD, "default", pod["metadata"]["name"])


def press(there: Setup) -> Awaitable[object]:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]
    return there.people.patch(
        NODE, "", "node-1", {"status": {"conditions": conditions}}, subresource="status"
    )


def annotate(name: str, value: str, then: str) -> Inject:
    async def both(there: Setup) -> None:
        await there.people.patch(
            DAEMONSET, "default", "agent", {"metadata": {"annotations": {name: value}}}
        )
        await there.edit(then)

    return both


async def select_no_node(there: Setup) -> None:
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}
    await there.people.patch(DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC)


async def nothing(_: Setup) -> None:
    """The fault exists from the start."""


def refusing(message: str) -> simulator_faults.Faults:
    def refuse(request: simulator_faults.SimulatedRequest) -> simulator_faults.RequestFault | None:
        return (
            errors.Forbidden(message, 403, "Forbidden")
            if (request.verb, request.resource) == ("create", POD)
            else None
        )

    return refuse


@dataclass(frozen=True)
class Fault:
    """A fault in a healthy cluster of three nodes, when the cluster can know of it, and the
    expected report.
    """

    name: str
    inject: Inject
    state: HealthState
    expected: set[tuple[str, Blame]]  # reason and blame of the nodes that are not well
    notice: float = 0.0
    bad: Sequence[simulator.PodFault] = ()
    nodes: Sequence[NodeSpec] = tuple(named(range(3)))
    spec: dict[str, Any] = field(default_factory=dict)
    pull: float = 2.0
    faults: simulator_faults.Faults = simulator_faults.none


H, P, D, F, S = (
    HealthState.HEALTHY,
    HealthState.PROGRESSING,
    HealthState.DEGRADED,
    HealthState.FAILED,
    HealthState.SUSPENDED,
)
T, N, C, W, U = Blame.TEMPLATE, Blame.NODE, Blame.CLUSTER, Blame.DESIGN, Blame.UNKNOWN
OLD = ("Outdated", U)
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
QUOTA = (
    'pods "agent-x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=3, limited: '
    "pods=3"
)
WEBHOOK = 'admission webhook "policy.example.com" denied the request: no digest'


def bad(trouble: Trouble, of: str = "bad", nodes: str = "*") -> tuple[simulator.PodFault, ...]:
    return (simulator.PodFault(of, trouble, nodes),)


FAULTS = [
    Fault(
        "the image is nowhere",
        image("bad"),
        F,
        {("ImagePullBackOff", T), OLD},
        bad=bad(Trouble.NEVER_PULLED),
    ),
    Fault(
        "the new agent crashes",
        image("bad"),
        F,
        {("CrashLoopBackOff", T), OLD},
        bad=bad(Trouble.CRASHES),
    ),
    Fault(
        "its probe never succeeds",
        image("bad"),
        F,
        {("NotReady", T), OLD},
        notice=DEADLINE,
        bad=bad(Trouble.NEVER_READY),
    ),
    Fault(
        "the first agent crashes",
        nothing,
        F,
        {("CrashLoopBackOff", T)},
        bad=bad(Trouble.CRASHES, "agent:1"),
    ),
    Fault(
        *("the image is not for the second kind of machine", nothing, F, {("ImagePullBackOff", T)}),
        bad=bad(Trouble.NEVER_PULLED, "agent:1", "arm-*"),
        nodes=(*named(range(3)), NodeSpec("arm-0", machine="arm64")),
    ),
    Fault(
        *("of OnDelete the agents that run crash", image("agent:2"), F, {("CrashLoopBackOff", T)}),
        bad=bad(Trouble.CRASHES, "agent:1"),
        spec=ON_DELETE,
    ),
    Fault("a node dies", kill, D, {("NodeNotReady", N)}, notice=50),
    Fault("a kubelet reports that it is not ready", unready, D, {("NodeNotReady", N)}),
    Fault("a node is cordoned, and its agent runs on", node(unschedulable=True), H, set()),
    Fault(
        *(
            "an agent comes not up again on a cordoned node",
            node(unschedulable=True),
            D,
            {("NodeCordoned", N)},
        ),
        bad=bad(Trouble.CRASHES, "agent:1", "node-1"),
    ),
    Fault(
        "a node's disk is full",
        press,
        D,
        {("DiskPressure", N)},
        bad=bad(Trouble.CRASHES, "agent:1", "node-1"),
    ),
    Fault(
        *("the agent fails on one node of three", nothing, D, {("CrashLoopBackOff", N)}),
        bad=bad(Trouble.CRASHES, "agent:1", "node-1"),
    ),
    Fault(
        *("a node has no room", nothing, D, {("Unschedulable", N)}),
        nodes=(
            *named(range(2)),
            NodeSpec("node-2", room={"cpu": "8", "memory": "32Gi", "pods": "0"}),
        ),
    ),
    Fault("a node joins and pulls for a while", join(), H, {("Joining", U)}, pull=30),
    Fault(
        "a node joins and is not ready yet",
        join(taints=(Taint("node.kubernetes.io/network-unavailable", "NoSchedule"),)),
        H,
        {("Joining", U)},
    ),
    Fault(
        "a node joins where the agent can't run",
        join(),
        D,
        {("ImagePullBackOff", N)},
        bad=bad(Trouble.NEVER_PULLED, "agent:1", "new-*"),
    ),
    Fault("a node is taken away", remove, H, set()),
    Fault("an agent is restarted", restart, H, set()),
    Fault("OnDelete waits", image("agent:2"), H, {("Outdated", W)}, spec=ON_DELETE),
    Fault(
        "a suspended rollout waits",
        annotate(names.SUSPEND, "true", "agent:2"),
        S,
        {("Outdated", W)},
    ),
    Fault("a slow rollout continues", image("agent:2"), P, {("Starting", U), OLD}, pull=30),
    Fault("a quota refuses", nothing, D, {("Refused", C)}, faults=refusing(QUOTA)),
    Fault("a webhook refuses", nothing, D, {("Refused", C)}, faults=refusing(WEBHOOK)),
    Fault("no node fits", select_no_node, H, set()),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_has_its_class_within_15_seconds_and_keeps_it(fault: Fault) -> None:
    behaviour = Behaviour(pull=fault.pull, faults=tuple(fault.bad))
    async with set_up(fault.nodes, daemonset(**fault.spec), behaviour) as there:
        controller = there.begin(client=there.cluster.client(faults=fault.faults))
        async with tracked(there, controller, deadline=DEADLINE) as tracker:
            if fault.inject is not nothing:
                await asyncio.sleep(100)
            await fault.inject(there)
            await asyncio.sleep(fault.notice + NOTICED)
            _is_right(fault, tracker.agents()[0].health)
            for _ in range(AFTERWARDS):
                await asyncio.sleep(1)
                _never_wrong(fault, tracker.agents()[0].health)


def _is_right(fault: Fault, judged: Health) -> None:
    assert (judged.state, {(node.reason, node.blame) for node in judged.nodes}) == (
        fault.state,
        fault.expected,
    ), judged


def _never_wrong(fault: Fault, judged: Health) -> None:
    """No fault of a node ever makes it Failed, and none of the template ever leaves it Healthy."""
    blames = {blame for _, blame in fault.expected}
    if T in blames:
        assert judged.state is F, judged
    elif C not in blames:
        assert judged.state is not F, judged


async def test_a_refusal_beyond_the_deadline_fails_and_a_new_commit_restarts_the_deadline() -> None:
    async with set_up(3) as there:
        controller = there.begin(client=there.cluster.client(faults=refusing(QUOTA)))
        async with tracked(there, controller, deadline=DEADLINE) as tracker:
            commit = {"metadata": {"annotations": {names.COMMIT: "b" * 40}}}
            for _ in range(2):
                for wait, state in ((50, D), (15, F)):
                    await asyncio.sleep(wait)
                    judged = tracker.agents()[0].health
                    assert judged.state is state
                    assert "exceeded quota" in judged.message
                await there.people.patch(DAEMONSET, "default", "agent", commit)


async def test_a_rollout_behind_a_dead_node_is_held_up_by_it_and_has_not_failed() -> None:
    body = daemonset(updateStrategy=world.rolling(1))
    async with set_up(4, body) as there, tracked(there, deadline=DEADLINE) as tracker:
        await asyncio.sleep(30)
        there.cluster.unready_node("node-0")
        await there.edit("agent:2")
        for _ in range(600):
            await asyncio.sleep(1)
            assert tracker.agents()[0].health.state is not F, tracker.agents()[0].health


async def test_without_a_controller_a_change_has_failed_after_the_deadline() -> None:
    async with (
        set_up(2) as there,
        tracked(there, there.begin(Powers.PACE), deadline=DEADLINE) as tracker,
    ):
        await asyncio.sleep(DEADLINE - 5)
        assert tracker.agents()[0].health.state is P
        await asyncio.sleep(10)
        judged = tracker.agents()[0].health
        message = "no controller has observed generation 1 yet, for 60 s"
        assert (judged.state, judged.message) == (F, message)
